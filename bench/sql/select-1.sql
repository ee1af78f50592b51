-- The floor: a round trip with the cheapest statement there is.
SELECT 1;

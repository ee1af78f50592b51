import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * A worker that works only while it leads: Java and the JDBC driver.
 *
 * <pre>
 * java -cp /usr/share/java/postgresql.jar Client.java ELECTION TTL
 * </pre>
 *
 * It connects as PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD say. One thread
 * keeps the lease, the main thread works; each has its own connection. A call that
 * gets no answer ends by socketTimeout, and the worker looks at the deadline before
 * every piece of work, so it stops in time also when the server does not answer.
 */
public class Client {
    private static final String BID = """
            SELECT is_leader, epoch,
                   extract(epoch FROM step_down_after)::float8 AS step_down_after,
                   extract(epoch FROM retry_after)::float8 AS retry_after
              FROM leader_acquire(?, ?, ttl => ?::interval)""";

    /** The same piece again, while still leader. */
    private static final Set<String> AGAIN = Set.of("40001", "40P01", "55P03", "57014");

    private record Lease(long epoch, long until) {
        static final Lease NONE = new Lease(0, 0);

        boolean good() {
            return epoch != 0 && until - System.nanoTime() > 0;
        }
    }

    private final String election;
    private final String ttl;
    private final String holder =
            ProcessHandle.current().pid() + " " + UUID.randomUUID().toString();

    private volatile Lease lease = Lease.NONE;
    private volatile boolean terminated;
    private final CountDownLatch leave = new CountDownLatch(1);

    private Client(String election, String ttl) {
        this.election = election;
        this.ttl = ttl;
    }

    private static Connection connect() throws SQLException {
        var env = System.getenv();
        var properties = new Properties();
        properties.put("user", env.get("PGUSER"));
        properties.put("password", env.getOrDefault("PGPASSWORD", ""));
        properties.put("connectTimeout", "3");
        properties.put("socketTimeout", "5"); // on this side, in seconds
        properties.put("options", "-c statement_timeout=3s"); // on the server
        return DriverManager.getConnection(
                "jdbc:postgresql://%s:%s/%s".formatted(
                        env.get("PGHOST"), env.get("PGPORT"), env.get("PGDATABASE")),
                properties);
    }

    private static Connection drop(Connection connection) {
        try {
            if (connection != null) {
                connection.abort(Runnable::run);
            }
        } catch (SQLException e) {
            // It is of no more use in any case.
        }
        return null;
    }

    private static long nanos(double seconds) {
        return (long) (seconds * 1e9);
    }

    /** Bids and renews. After an error the old deadline still holds. */
    private void keepLease() {
        Connection connection = null;
        try {
            long pause = 0;
            while (!leave.await(pause, TimeUnit.NANOSECONDS)) {
                long asked = System.nanoTime();
                try {
                    if (connection == null) {
                        connection = connect();
                    }
                    try (var bid = connection.prepareStatement(BID)) {
                        bid.setString(1, election);
                        bid.setString(2, holder);
                        bid.setString(3, ttl);
                        ResultSet row = bid.executeQuery();
                        row.next();
                        lease = row.getBoolean("is_leader")
                                ? new Lease(row.getLong("epoch"),
                                        asked + nanos(row.getDouble("step_down_after")))
                                : Lease.NONE;
                        pause = nanos(row.getDouble("retry_after"));
                    }
                } catch (SQLException e) {
                    System.out.println("no answer to a bid: " + e.getMessage());
                    connection = drop(connection);
                    pause = nanos(0.5);
                }
            }
        } catch (InterruptedException e) {
            // Told to leave at once.
        }
        drop(connection);
    }

    private boolean call(Connection connection, String sql, long epoch) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setString(1, election);
            statement.setLong(2, epoch);
            return statement.execute();
        }
    }

    private void pieceOfWork(Connection connection) throws SQLException, InterruptedException {
        try (var insert = connection.prepareStatement("INSERT INTO work (worker) VALUES (?)")) {
            insert.setString(1, holder);
            insert.executeUpdate();
        }
        Thread.sleep(100); // where real work takes its time
    }

    private void work() throws SQLException, InterruptedException {
        Connection connection = null;
        long acting = 0;
        long refused = 0;
        while (!terminated) {
            Lease current = lease;
            long epoch = current.good() && current.epoch() != refused ? current.epoch() : 0;
            if (epoch != acting) {
                System.out.println(epoch != 0 ? "leading " + epoch : "not leading");
                acting = epoch;
            }
            if (epoch == 0) {
                Thread.sleep(20);
                continue;
            }
            try {
                if (connection == null) {
                    connection = connect();
                    connection.setAutoCommit(false);
                }
                call(connection, "SELECT leader_fence(?, ?)", epoch);
                pieceOfWork(connection);
                connection.commit();
            } catch (SQLException e) {
                String state = e.getSQLState() == null ? "08000" : e.getSQLState();
                System.out.println("refused " + state);
                if (connection == null || state.startsWith("08") || state.startsWith("57P")) {
                    connection = drop(connection);
                    Thread.sleep(500);
                    continue;
                }
                try {
                    connection.rollback();
                } catch (SQLException lost) {
                    connection = drop(connection);
                }
                if (state.equals("LE001")) {
                    refused = epoch; // replaced or deposed: never again with this one
                } else if (AGAIN.contains(state)) {
                    Thread.sleep(50);
                } else {
                    drop(connection);
                    throw e; // LE002 and LE003 too: a mistake, which no repetition mends
                }
            }
        }
        drop(connection);
    }

    private void release() throws SQLException {
        long epoch = lease.epoch();
        if (epoch != 0) {
            try (Connection connection = connect()) {
                call(connection, "SELECT leader_release(?, ?)", epoch);
            }
            System.out.println("released " + epoch);
        }
    }

    private void run() throws SQLException, InterruptedException {
        var main = Thread.currentThread();
        var keeper = new Thread(this::keepLease);

        // On SIGTERM the virtual machine ends when this has.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            terminated = true;
            try {
                main.join(10_000);
            } catch (InterruptedException e) {
                // Then without a release.
            }
        }));
        keeper.setDaemon(true);
        keeper.start();
        try {
            work();
        } finally {
            // Only when no more is done: the next leader begins at once.
            leave.countDown();
            keeper.join(6_000);
            release();
        }
    }

    public static void main(String[] args) throws Exception {
        new Client(args[0], args[1]).run();
    }
}

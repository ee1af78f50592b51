# Check: does a history of what clients did, and of what the data say, keep the
# promises?
#
# A history is a list of events, one JSON object a line in the files of a run.
# Times are seconds of CLOCK_MONOTONIC, the clock that the server measures
# leases on.  "k" is the kind of an event:
#
#	inv	an operation was sent: id, c (the client: a holder name that only one
#		process ever has), op, el (election), ep (the epoch it presents), srv
#		(the server), t, and what matters to the operation: ses (connection),
#		tab (the table written), kind (lease|session), ttl
#	told	within an operation that goes on, an acquired epoch was told: id, t0, t,
#		ep, x, xid
#	passed	at t the fence had let a write pass, whose transaction goes on: id
#	ret	it ended: id, t, out (ok|refused|unknown), st (SQLSTATE), and the answer:
#		lead (is leader), ep, x (expires_in in seconds, null: no limit), xid (of
#		the transaction, if it had one), locks (kept by a losing bid), val
#		(what a function returned).  Without a "ret" the outcome is unknown.
#	gone	from t on the connection ses, or all of c, may have ended (written
#		before that is done)
#	restart	from t on the server srv may have lost its memory; its next incarnation
#		looks at nothing before t1, and who connects after t2 (or t1) has it
#	branch	srv is to take over from the server "parent" at t: mode is "sync" (it has
#		all that was acknowledged) or "lag" (it has what was acknowledged before
#		"caught", and what lies before lsn)
#	sync	srv waited for a standby from t0 to t1, which makes terms unconfirmed
#	fault	kind, t0, t1, confirmed (was it seen to happen?), slot (of the client
#		that it hit)
#	row	in the end, srv has a row in tab: id (of the operation), el, ep, lsn (the
#		end of its commit in the log)
#	term	in the end, srv's leader_term has: el, ep, leader, ended, reason
#	commit	srv committed the transaction xid at lsn
#	end	srv's rows, terms and commits were all written out, as of t or later
#
# Rows, terms and commits of a server include those of the servers before it.
# An unknown outcome may have happened or not; nothing here depends on which.
package Check;

use strict;
use warnings FATAL => 'all';

use JSON::PP ();
use List::Util qw(max min);

# Intervals are told in whole microseconds.
my $precision = 0.001;
my $never = 9**9**9;

sub read_history
{
	my ($dir) = @_;
	my $json = JSON::PP->new->utf8;
	my $reader = eval { require JSON::XS; JSON::XS->new->utf8 } // $json;
	my @events;

	foreach my $file (sort glob "$dir/*.jsonl")
	{
		open(my $in, '<', $file) or die "$file: $!";
		while (my $line = <$in>)
		{
			# A process may have been killed while it wrote.
			next unless $line =~ /\}\n\z/;
			push @events, $reader->decode($line);
		}
	}
	return \@events;
}

# The answer: { violations => [ { promise, text, events } ], counts => {...},
# faults => { kind => {...} } }.
sub check
{
	my ($events, %params) = @_;
	my $self = bless {
		op => {}, ops => [], term => {}, gone => {}, restart => [], branch => {},
		fault => [], row => {}, history => {}, commit => {}, ended => {},
		violations => [], counts => {} }, __PACKAGE__;

	$self->arrange($events);
	$self->find_terms;
	$self->check_one_holder;
	$self->check_order_of_grants;
	$self->check_commits($_) foreach sort keys %{ $self->{ended} };
	$self->check_takeovers;
	$self->count_open;
	$self->check_restarts;
	$self->check_losing_bids;
	$self->check_acknowledged($_) foreach sort keys %{ $self->{ended} };
	$self->check_stale;
	$self->check_traces;
	$self->check_history($_) foreach sort keys %{ $self->{ended} };
	$self->count_faults;
	return $self;
}

# What a run must have gone through in order to prove anything.
sub vacuous
{
	my ($self, %least) = @_;
	my @missing;

	foreach my $what (sort keys %least)
	{
		my $seen = $self->{counts}->{$what} // 0;
		push @missing, "only $seen $what, not $least{$what}" if $seen < $least{$what};
	}
	return @missing;
}

sub violation
{
	my ($self, $promise, $text, @events) = @_;
	push @{ $self->{violations} },
	  { promise => $promise, text => $text, events => [ grep { defined } @events ] };
	return;
}

sub count
{
	my ($self, $what, $by) = @_;
	$self->{counts}->{$what} += $by // 1;
	return;
}

#
# Arranging
#

sub arrange
{
	my ($self, $events) = @_;
	my @sync = grep { $_->{k} eq 'sync' } @$events;

	foreach my $e (@$events)
	{
		my $k = $e->{k};

		if ($k eq 'inv')
		{
			my $op = { %$e, t0 => $e->{t}, t1 => $never, out => 'unknown' };
			delete @$op{qw(k t)};
			$self->{op}->{ $e->{id} } = $op;
			push @{ $self->{ops} }, $op;
		}
		elsif ($k eq 'gone') { push @{ $self->{gone}->{ $e->{ses} // $e->{c} } }, $e->{t}; }
		elsif ($k eq 'restart') { push @{ $self->{restart} }, $e; }
		elsif ($k eq 'branch') { $self->{branch}->{ $e->{srv} } = $e; }
		elsif ($k eq 'fault') { push @{ $self->{fault} }, $e; }
		elsif ($k eq 'row') { push @{ $self->{row}->{ $e->{srv} } }, $e; }
		elsif ($k eq 'term') { push @{ $self->{history}->{ $e->{srv} } }, $e; }
		elsif ($k eq 'commit') { $self->{commit}->{ $e->{srv} }->{ $e->{xid} } = $e->{lsn}; }
		elsif ($k eq 'end') { $self->{ended}->{ $e->{srv} } = $e->{t} // $never; }
	}
	foreach my $e (@$events)
	{
		if ($e->{k} eq 'told')
		{
			$self->{op}->{ $e->{id} }->{told} = $e;
			$self->{op}->{ $e->{id} }->{xid} = $e->{xid} if defined $e->{xid};
		}
		elsif ($e->{k} eq 'passed') { $self->{op}->{ $e->{id} }->{passed} = $e->{t}; }
		elsif ($e->{k} eq 'ret')
		{
			my $op = $self->{op}->{ $e->{id} } or die "no operation $e->{id}";
			$op->{$_} = $e->{$_} foreach grep { !/^(?:k|id|t|ep|told)$/ } keys %$e;
			$op->{t1} = $e->{t};
			$op->{answer} = $e->{ep} if defined $e->{ep};
		}
	}
	foreach my $op (@{ $self->{ops} })
	{
		$op->{sync} = 1
		  if grep { $_->{srv} eq $op->{srv} && $_->{t0} <= $op->{t1} && $_->{t1} >= $op->{t0} } @sync;
	}
	@{ $self->{ops} } = sort { $a->{t0} <=> $b->{t0} } @{ $self->{ops} };
	@{ $self->{restart} } = sort { $a->{t} <=> $b->{t} } @{ $self->{restart} };
	$self->count('operations', scalar @{ $self->{ops} });
	$self->count("$_->{out} outcomes") foreach @{ $self->{ops} };
	return;
}

# The servers whose history a server goes on with: itself first.
sub chain
{
	my ($self, $srv) = @_;
	my @chain = ($srv);

	while (my $branch = $self->{branch}->{ $chain[-1] })
	{
		push @chain, $branch->{parent};
	}
	return @chain;
}

# Does "later" go on with what "earlier" had?  The answer is the list of the
# branches between them, oldest first, or nothing.
sub branches_between
{
	my ($self, $earlier, $later) = @_;
	my @branches;

	for (my $srv = $later; $srv ne $earlier;)
	{
		my $branch = $self->{branch}->{$srv} or return;
		unshift @branches, $branch;
		$srv = $branch->{parent};
	}
	return \@branches;
}

# Must a server know what an operation did on another one?
sub must_have
{
	my ($self, $srv, $op) = @_;
	my $branches = $self->branches_between($op->{srv}, $srv) or return 0;

	return 0 if $op->{t1} > $self->{ended}->{$srv};
	foreach my $branch (@$branches)
	{
		return 0 if $branch->{mode} eq 'lag' && $op->{t1} > $branch->{caught};
	}
	return 1;
}

# Where it lies in the log of a server, if it does.
sub lsn_of
{
	my ($self, $srv, $op) = @_;
	my $xid = $op->{xid} // return;
	my $branches = $self->branches_between($op->{srv}, $srv) or return;
	my $lsn = $self->{commit}->{ $op->{srv} }->{$xid} // return;

	foreach my $branch (@$branches)
	{
		return if defined $branch->{lsn} && $lsn > $branch->{lsn};
	}
	return $lsn;
}

# A term: who was told an epoch, and until when he could count on it.
sub find_terms
{
	my ($self) = @_;
	my %unanswered;

	foreach my $op (@{ $self->{ops} })
	{
		my ($el, $c) = @$op{qw(el c)};

		if ($op->{op} eq 'acquire')
		{
			my $told = $op->{told};
			my $epoch = $told ? $told->{ep} : $op->{lead} ? $op->{answer} : undef;

			if (!defined $epoch)
			{
				push @{ $unanswered{$el}{$c} }, $op if $op->{out} eq 'unknown';
				next;
			}
			my $term = $self->{term}->{$el}{$epoch}{$c} //= {
				el => $el, ep => $epoch, c => $c, srv => $op->{srv}, op => $op,
				kind => $op->{kind}, ttl => $op->{ttl}, ses => $op->{ses}, tells => [],
				# From when on it may have been there, and when it was surely told
				t0 => min($op->{t0}, map { $_->{t0} } @{ $unanswered{$el}{$c} // [] }),
				t1 => $told ? $told->{t} : $op->{t1},
				fate => 'unknown' };
			if ($op->{out} eq 'ok') { $term->{fate} = 'ok'; }
			elsif ($op->{out} eq 'refused' && $op == $term->{op})
			{
				$term->{fate} = 'refused';
			}
			# Until it is known to be committed, nobody can count on it.
			push @{ $term->{tells} },
			  {
				op => $op, srv => $op->{srv},
				t0 => $told ? $told->{t0} : $op->{t0}, t1 => $op->{t1},
				x => $told ? $told->{x} : $op->{x} }
			  if $op->{out} eq 'ok';
		}
	}
	foreach my $op (@{ $self->{ops} })
	{
		next unless $op->{op} eq 'renew' && $op->{out} eq 'ok' && $op->{lead};
		my $terms = $self->{term}->{ $op->{el} }{ $op->{ep} } // {};
		my ($term) = values %$terms;

		if (!$term)
		{
			$self->violation('P1', 'an epoch was renewed that nobody was granted', $op);
			next;
		}
		push @{ $term->{tells} },
		  { op => $op, srv => $op->{srv}, t0 => $op->{t0}, t1 => $op->{t1}, x => $op->{x} };
	}
	$self->find_ends;
	return;
}

# Whatever may have ended a term before its time.
sub find_ends
{
	my ($self) = @_;
	my (%released, %deposed, @sessions_deposed);

	foreach my $op (@{ $self->{ops} })
	{
		next if $op->{out} eq 'refused';
		if ($op->{op} eq 'release')
		{
			next if $op->{out} eq 'ok' && !$op->{val};
			push @{ $released{ $op->{el} }{ $op->{ep} } }, $op;
		}
		elsif ($op->{op} eq 'depose')
		{
			# What ends a backend may have done so and failed then.
			push @sessions_deposed, $op if $op->{el} =~ /^s/;
			next if $op->{out} eq 'ok' && !defined $op->{val};
			push @{ $deposed{ $op->{el} } }, $op;
		}
	}
	foreach my $op (@{ $self->{ops} })
	{
		push @sessions_deposed, $op
		  if $op->{op} eq 'depose' && $op->{el} =~ /^s/ && $op->{out} eq 'refused';
	}
	foreach my $term ($self->terms)
	{
		my @ends = @{ $released{ $term->{el} }{ $term->{ep} } // [] };

		# The number that it answered is higher than that of the term it ended.
		push @ends, grep { $_->{t1} >= $term->{t0} && ($_->{val} // $never) > $term->{ep} }
		  @{ $deposed{ $term->{el} } // [] };
		if ($term->{kind} eq 'session')
		{
			push @ends, map { { t0 => $_, t1 => $never, out => 'unknown' } }
			  grep { $_ >= $term->{t0} }
			  (map { @{ $self->{gone}->{$_} // [] } } $term->{ses} // '', $term->{c}),
			  map { $_->{t} } @{ $self->{restart} };
			push @ends, map { { t0 => $_->{t0}, t1 => $never, out => 'unknown' } }
			  grep { $_->{t1} >= $term->{t0} } @sessions_deposed;
		}
		$term->{ends} = [ sort { $a->{t0} <=> $b->{t0} } @ends ];
	}
	return;
}

sub terms
{
	my ($self, $el) = @_;
	my @elections = defined $el ? $el : sort keys %{ $self->{term} };
	my @terms;

	foreach my $election (@elections)
	{
		my $of = $self->{term}->{$election} // {};
		foreach my $epoch (sort { $a <=> $b } keys %$of)
		{
			push @terms, map { $of->{$epoch}{$_} } sort keys %{ $of->{$epoch} };
		}
	}
	return @terms;
}

#
# P1
#

sub check_one_holder
{
	my ($self) = @_;
	my %by_epoch;

	push @{ $by_epoch{ $_->{ep} } }, $_ foreach $self->terms;
	foreach my $op (@{ $self->{ops} })
	{
		# The number that a depose answers is nobody's token.
		push @{ $by_epoch{ $op->{val} } },
		  { el => $op->{el}, c => "nobody, $op->{id}", op => $op }
		  if $op->{op} eq 'depose' && $op->{out} eq 'ok' && defined $op->{val};
	}
	foreach my $epoch (sort { $a <=> $b } keys %by_epoch)
	{
		my @terms = @{ $by_epoch{$epoch} };

		$self->violation('P1',
			"epoch $epoch is that of " . join(', and of ', map { "$_->{el} for $_->{c}" } @terms),
			map { $_->{op} } @terms)
		  if @terms > 1;
		$self->violation('P1', "epoch $epoch is not below 2^53", $terms[0]->{op})
		  if $epoch >= 2**53 || $epoch <= 0;
	}
	return;
}

sub check_order_of_grants
{
	my ($self) = @_;

	foreach my $el (sort keys %{ $self->{term} })
	{
		my @terms = $self->terms($el);

		foreach my $srv (keys %{ { map { $_->{srv} => 1 } @terms } })
		{
			my @begins = sort { $a->{t0} <=> $b->{t0} } grep { $_->{srv} eq $srv } @terms;
			my @before;
			foreach my $term (@terms)
			{
				my $branches = $self->branches_between($term->{srv}, $srv) // next;
				# What was told by a server that had been replaced is a fork.
				push @before, $term
				  unless grep { $term->{t1} > $_->{t} } @$branches;
			}
			@before = sort { $a->{t1} <=> $b->{t1} } @before;
			my $highest;
			foreach my $term (@begins)
			{
				while (@before && $before[0]->{t1} < $term->{t0})
				{
					my $told = shift @before;
					$highest = $told if !$highest || $told->{ep} > $highest->{ep};
				}
				$self->violation('P1',
					"epoch $term->{ep} of $el was granted after $highest->{ep} had been told",
					$highest->{op}, $term->{op})
				  if $highest && $highest->{ep} >= $term->{ep} && $highest != $term;
			}
		}
	}
	return;
}

#
# P2: in the order in which a server committed
#

sub check_commits
{
	my ($self, $srv) = @_;
	my %steps;

	foreach my $row (@{ $self->{row}->{$srv} // [] })
	{
		push @{ $steps{ $row->{tab} eq 'control' ? 'control' : 'fenced' }{ $row->{el} } },
		  { lsn => $row->{lsn}, rank => 1, row => $row, ep => $row->{ep} }
		  if $row->{tab} =~ /^(?:w_|control$)/;
	}
	foreach my $op (@{ $self->{ops} })
	{
		next if $op->{out} eq 'refused';
		my $lsn = $self->lsn_of($srv, $op) // next;
		my %step = (lsn => $lsn, op => $op);

		if ($op->{op} eq 'acquire')
		{
			my $epoch = ($op->{told} // {})->{ep} // $op->{answer} // next;
			@step{qw(rank ep)} = (0, $epoch);
		}
		elsif ($op->{op} eq 'release' && $op->{val} && $op->{out} eq 'ok')
		{
			@step{qw(rank ends)} = (2, $op->{ep});
		}
		elsif ($op->{op} eq 'depose' && defined $op->{val})
		{
			@step{qw(rank ep)} = (0, $op->{val});
		}
		else { next; }
		push @{ $steps{$_}{ $op->{el} } }, \%step foreach qw(fenced control);
	}
	foreach my $sort (qw(fenced control))
	{
		foreach my $el (sort keys %{ $steps{$sort} })
		{
			my ($newest, %ended);

			foreach my $step (sort { $a->{lsn} <=> $b->{lsn} || $a->{rank} <=> $b->{rank} }
				@{ $steps{$sort}{$el} })
			{
				my $row = $step->{row};

				if (defined $step->{ends}) { $ended{ $step->{ends} } = $step; }
				my $stale = $row && ($newest && $row->{ep} < $newest->{ep} ? $newest
					: $ended{ $row->{ep} });

				if ($row && $sort eq 'control')
				{
					$self->count('control violations') if $stale;
				}
				elsif ($row)
				{
					$self->count('fenced commits');
					$self->violation('P2',
						"on $srv, a write to $row->{tab} under epoch $row->{ep} of $el was "
						  . 'committed after '
						  . ($newest && $stale == $newest ? "epoch $newest->{ep}" : 'that term had ended'),
						$stale->{op} // $stale->{row}, $row, $self->{op}->{ $row->{id} })
					  if $stale;
					$self->violation('P2',
						"on $srv, a write to $row->{tab} carries epoch $row->{ep} of $el, which nobody was told",
						$row)
					  unless $self->{term}->{$el}{ $row->{ep} };
				}
				$newest = $step
				  if defined $step->{ep} && (!$newest || $step->{ep} > $newest->{ep});
			}
		}
	}
	return;
}

#
# P3: no takeover is known to have waited, as everything may be slow; but those
# are counted that did not wait for a fenced transaction that stayed open.
#

sub count_open
{
	my ($self) = @_;
	my %grants;

	push @{ $grants{ $_->{el} }{ $_->{srv} } }, $_->{op} foreach $self->terms;
	$self->count('takeovers past an open transaction', 0);
	foreach my $op (@{ $self->{ops} })
	{
		next unless defined $op->{passed} && $op->{t1} < $never;
		$self->count('takeovers past an open transaction')
		  if grep { $_->{out} eq 'ok' && $_->{t0} > $op->{passed} && $_->{t1} < $op->{t1}
			  && ($_->{answer} // ($_->{told} // {})->{ep} // 0) > $op->{ep} }
		  @{ $grants{ $op->{el} }{ $op->{srv} } // [] };
	}
	return;
}

#
# P4
#

# What a holder was told on one server binds another one under these conditions.
sub binds
{
	my ($self, $term, $tell, $srv) = @_;
	my $branches = $self->branches_between($tell->{srv}, $srv) // return 0;

	# Connections do not outlive the server: its successor knows of none.
	return 0 if @$branches && $term->{kind} eq 'session';
	foreach my $branch (@$branches)
	{
		next if $branch->{mode} eq 'sync';
		return 0 if $tell->{t0} >= $branch->{t};
		return 0 if $term->{op}->{t1} > $branch->{caught};
	}
	return 1;
}

sub check_takeovers
{
	my ($self) = @_;

	foreach my $el (sort keys %{ $self->{term} })
	{
		my @terms = $self->terms($el);
		my @earlier;

		foreach my $next (@terms)
		{
			if ($next->{fate} ne 'refused')
			{
				foreach my $term (@earlier)
				{
					last if !$self->check_takeover($term, $next);
				}
				$self->count('takeovers')
				  if $next->{fate} eq 'ok' && @earlier && $earlier[-1]->{c} ne $next->{c};
			}
			push @earlier, $next if $next->{fate} ne 'refused';
		}
		$self->check_told($_) foreach @terms;
	}
	return;
}

# Was a term granted while another one's holder had time left?
sub check_takeover
{
	my ($self, $term, $next) = @_;

	# Whether it was committed is seen at the end of its transaction only.
	my $granted = $next->{op}->{out} eq 'ok' ? $next->{op}->{t1} : return 1;

	# That would be grants out of order.
	return 1 if $term->{t0} > $granted;
	return 1 if grep { $_->{t0} <= $granted } @{ $term->{ends} };
	foreach my $tell (@{ $term->{tells} })
	{
		my $until = defined $tell->{x} ? $tell->{t0} + $tell->{x} : $never;

		next if $until <= $granted + $precision;
		next unless $self->binds($term, $tell, $next->{srv});
		$self->violation('P4',
			sprintf("%s: epoch %d was granted %s before the time of epoch %d had run out",
				$term->{el}, $next->{ep},
				$until == $never ? 'long' : sprintf('%.3f s', $until - $granted), $term->{ep}),
			$tell->{op}, $next->{op});
		return 0;
	}
	return 1;
}

# Who was told that he leads is not told otherwise before that time, unless
# something ended the term; nor is anything but "no" told after the end.
sub check_told
{
	my ($self, $term) = @_;
	my ($el, $epoch) = @$term{qw(el ep)};

	foreach my $op (@{ $self->{by_token}->{$el}{$epoch} //= $self->by_token($el, $epoch) })
	{
		next unless $op->{op} =~ /^(?:renew|check)$/ && $op->{out} eq 'ok';
		my $yes = $op->{op} eq 'renew' ? $op->{lead} : $op->{val};

		if ($yes)
		{
			my ($end) = grep { $_->{out} eq 'ok' && $_->{t1} < $op->{t0}
				  && $_->{op} =~ /^(?:release|depose)$/ && $_->{srv} eq $op->{srv} }
			  @{ $term->{ends} };

			$self->violation('P4', "$op->{op} of epoch $epoch of $el said yes after its end",
				$end, $op)
			  if $end;
			next;
		}
		next if $op->{sync} || grep { $_->{t0} <= $op->{t1} } @{ $term->{ends} };
		# Where sessions or servers may have ended, the next promise is asked.
		next if grep { $_->{t} <= $op->{t1} && $_->{srv} eq $op->{srv}
			  && $_->{t} >= $term->{t0} } @{ $self->{restart} };
		foreach my $tell (@{ $term->{tells} })
		{
			next unless $tell->{srv} eq $op->{srv} && $tell->{t1} < $op->{t0};
			my $until = defined $tell->{x} ? $tell->{t0} + $tell->{x} : $never;

			if ($op->{t1} < $until - $precision)
			{
				$self->violation('P4', sprintf(
						'%s of epoch %d of %s said no, %.3f s before the time that its holder was told',
						$op->{op}, $epoch, $el, $until == $never ? 0 : $until - $op->{t1}),
					$tell->{op}, $op);
				last;
			}
		}
	}
	return;
}

sub by_token
{
	my ($self, $el, $epoch) = @_;

	if (!$self->{token_index})
	{
		foreach my $op (@{ $self->{ops} })
		{
			push @{ $self->{token_index}->{ $op->{el} }{ $op->{ep} } }, $op
			  if defined $op->{ep} && defined $op->{el};
		}
	}
	return $self->{token_index}->{$el}{$epoch} // [];
}

#
# P5
#

sub check_restarts
{
	my ($self) = @_;
	my %by_server;

	# A connection is to the server as it was when it first answered there.
	my %first_use;
	foreach my $op (@{ $self->{ops} })
	{
		push @{ $by_server{ $op->{srv} } }, $op;
		$first_use{ $op->{ses} } //= $op->{t0};
	}
	my @restarts = @{ $self->{restart} };
	push @restarts, map { { srv => $_->{srv}, t => $_->{t}, t1 => $_->{t}, branch => $_ } }
	  values %{ $self->{branch} };
	foreach my $restart (@restarts)
	{
		my $looked = $restart->{t1};
		my $since = $restart->{t2} // $looked;
		my ($first) = grep { $_->{t0} >= $looked } @{ $by_server{ $restart->{srv} } // [] };
		$looked = $first->{t0} if $first;

		foreach my $term ($self->terms)
		{
			next unless $term->{kind} eq 'lease' && $term->{fate} eq 'ok';
			next unless defined $self->branches_between($term->{srv}, $restart->{srv});

			# Surely held when the memory went
			my ($tell) = grep {
				$_->{t1} < $restart->{t} && defined $_->{x}
				  && $_->{t0} + $_->{x} > $restart->{t}
				  && $self->binds($term, $_, $restart->{srv}) } @{ $term->{tells} };
			next unless $tell;
			$self->count('leases held over a restart');
			my $least = $looked + $term->{ttl};

			foreach my $next ($self->terms($term->{el}))
			{
				next unless $next->{srv} eq $restart->{srv} && $next->{ep} > $term->{ep};
				next unless $next->{op}->{out} eq 'ok' && $next->{t0} >= $since
				  && $first_use{ $next->{op}->{ses} } >= $since;
				my $granted = $next->{op}->{t1};
				next if $granted >= $least - $precision;
				next if grep { $_->{t0} <= $granted } @{ $term->{ends} };
				$self->violation('P5', sprintf(
						'%s: epoch %d was granted %.3f s after the first look after a restart; epoch %d had a TTL of %g s',
						$term->{el}, $next->{ep}, $granted - $looked, $term->{ep}, $term->{ttl}),
					$tell->{op}, $restart, $next->{op});
			}
			foreach my $op (@{ $self->by_token($term->{el}, $term->{ep}) })
			{
				next unless $op->{op} eq 'renew' && $op->{out} eq 'ok' && !$op->{lead};
				next unless $op->{srv} eq $restart->{srv} && !$op->{sync};
				next unless $first_use{ $op->{ses} } >= $since && $op->{t1} < $least - $precision;
				next if grep { $_->{t0} <= $op->{t1} } @{ $term->{ends} };
				$self->violation('P5',
					"$term->{el}: epoch $term->{ep} could not be renewed within a TTL after a restart",
					$tell->{op}, $restart, $op);
			}
		}
	}
	return;
}

#
# P6
#

sub check_losing_bids
{
	my ($self) = @_;

	foreach my $op (@{ $self->{ops} })
	{
		next unless $op->{op} eq 'acquire' && $op->{out} eq 'ok' && !$op->{lead};
		$self->count('losing bids');
		$self->violation('P6', "a losing bid for $op->{el} took a transaction id", $op)
		  if defined $op->{xid};
		$self->violation('P6', "a losing bid for $op->{el} kept $op->{locks} locks", $op)
		  if $op->{locks};
		$self->violation('P1', "a losing bid for $op->{el} was told an epoch", $op)
		  if defined $op->{answer};
	}
	return;
}

#
# P7
#

sub check_acknowledged
{
	my ($self, $srv) = @_;
	my %known;

	$known{ $_->{el} }{ $_->{ep} } = $_ foreach @{ $self->{history}->{$srv} // [] };
	foreach my $op (@{ $self->{ops} })
	{
		next unless $op->{out} eq 'ok' && $self->must_have($srv, $op);
		my $epoch = ($op->{told} // {})->{ep} // $op->{answer};

		if ($op->{op} eq 'acquire' && $op->{lead} && $op->{el} !~ /^d/)
		{
			$self->violation('P7', "$srv does not know epoch $epoch of $op->{el}", $op)
			  unless $known{ $op->{el} }{$epoch};
		}
		next unless $op->{op} =~ /^(?:acquire|release|depose)$/ && defined $op->{xid};
		$self->violation('P7', "$srv has not committed $op->{op} of $op->{el}", $op)
		  unless defined $self->lsn_of($srv, $op);
	}
	return;
}

#
# Stale operations: of an epoch that had been replaced, or ended, on that server
# and by an operation that was acknowledged before this one was sent
#

sub check_stale
{
	my ($self) = @_;
	my (%newest, @begun);

	foreach my $term ($self->terms)
	{
		push @begun, { t => $term->{op}->{t1}, el => $term->{el}, ep => $term->{ep},
			srv => $term->{srv}, op => $term->{op} }
		  if $term->{op}->{out} eq 'ok';
	}
	foreach my $op (@{ $self->{ops} })
	{
		push @begun, { t => $op->{t1}, el => $op->{el}, ep => $op->{val}, srv => $op->{srv}, op => $op }
		  if $op->{op} eq 'depose' && $op->{out} eq 'ok' && defined $op->{val};
		push @begun, { t => $op->{t1}, el => $op->{el}, ended => $op->{ep}, srv => $op->{srv}, op => $op }
		  if $op->{op} eq 'release' && $op->{out} eq 'ok' && $op->{val};
	}
	@begun = sort { $a->{t} <=> $b->{t} } @begun;

	my %ended;
	foreach my $op (@{ $self->{ops} })
	{
		while (@begun && $begun[0]->{t} < $op->{t0})
		{
			my $b = shift @begun;
			if (defined $b->{ended})
			{
				$ended{ $b->{srv} }{ $b->{el} }{ $b->{ended} } = $b;
				next;
			}
			my $n = \$newest{ $b->{srv} }{ $b->{el} };
			$$n = $b if !$$n || $b->{ep} > $$n->{ep};
		}
		next unless $op->{op} =~ /^(?:renew|release|check|metadata|write|fence|other)$/;
		if ($op->{op} eq 'other' && !defined $op->{ep})
		{
			# Without any token
			$self->count('writes without a token');
			$self->violation('P2', "$op->{how} of a protected table without a token", $op)
			  if $op->{out} eq 'ok';
			next;
		}
		next unless defined $op->{ep};
		my $newest = $newest{ $op->{srv} }{ $op->{el} };
		my $by = $newest && $newest->{ep} > $op->{ep} ? $newest
		  : $ended{ $op->{srv} }{ $op->{el} }{ $op->{ep} };
		next unless $by;
		# What begins again after an end has a new epoch.
		$op->{stale} = 1;
		$self->count('stale attempts');
		next unless $op->{out} eq 'ok';
		my $yes = $op->{op} eq 'renew' ? $op->{lead}
		  : $op->{op} =~ /^(?:write|fence|other)$/ ? 1 : $op->{val};
		next unless $yes;
		$self->violation(
			$op->{op} =~ /^(?:write|fence|other)$/ ? 'P2' : 'P4',
			"$op->{op}" . ($op->{how} ? " ($op->{how})" : '')
			  . " under epoch $op->{ep} of $op->{el}, which was no longer current",
			$by->{op}, $op);
	}
	foreach my $op (@{ $self->{ops} })
	{
		$self->violation('P2', 'a fenced transaction was prepared', $op)
		  if $op->{op} eq 'prepare' && $op->{out} eq 'ok';
	}
	return;
}

#
# Refused operations leave no trace, acknowledged ones do.
#

sub check_traces
{
	my ($self) = @_;

	foreach my $srv (sort keys %{ $self->{ended} })
	{
		my %present;
		foreach my $row (@{ $self->{row}->{$srv} // [] })
		{
			my $op = $self->{op}->{ $row->{id} };

			if (!$op)
			{
				$self->violation('trace', "$srv has a row that nobody wrote", $row);
				next;
			}
			$present{ $row->{id} } = 1;
			$self->violation('trace', "$srv has a row of an operation that was refused", $op, $row)
			  if $op->{out} eq 'refused';
			$self->violation('trace', "$srv has a row with another epoch than it was written with",
				$op, $row)
			  if $row->{ep} != $op->{ep};
		}
		foreach my $op (@{ $self->{ops} })
		{
			next unless $op->{op} eq 'write' || $op->{op} eq 'control';
			next unless $op->{out} eq 'ok' && $self->must_have($srv, $op);
			$self->violation('trace', "$srv has lost an acknowledged write", $op)
			  unless $present{ $op->{id} };
		}
		foreach my $op (@{ $self->{ops} })
		{
			next unless $op->{out} eq 'refused' && defined $op->{xid};
			$self->violation('trace', "$srv has committed what was refused", $op)
			  if defined $self->{commit}->{$srv}->{ $op->{xid} } && $op->{srv} eq $srv;
		}
	}
	return;
}

#
# History
#

sub check_history
{
	my ($self, $srv) = @_;
	my (%seen, %open, %bids);

	foreach my $op (@{ $self->{ops} })
	{
		$bids{ $op->{el} }{ $op->{c} } = 1
		  if $op->{op} eq 'acquire' && $op->{out} ne 'refused';
	}
	my %released = map { ("$_->{el} $_->{ep}" => 1) }
	  grep { $_->{op} eq 'release' && $_->{out} ne 'refused'
		  && ($_->{out} eq 'unknown' || $_->{val}) } @{ $self->{ops} };
	my %deposed = map { ($_->{el} => 1) }
	  grep { $_->{op} eq 'depose' && ($_->{out} eq 'unknown' || defined $_->{val}) }
	  @{ $self->{ops} };

	foreach my $term (@{ $self->{history}->{$srv} // [] })
	{
		my ($el, $epoch, $leader) = @$term{qw(el ep leader)};
		my $told = $self->{term}->{$el}{$epoch};
		my $where = "history of $srv: epoch $epoch of $el";

		$self->violation('history', "$where is there twice", $term) if $seen{$epoch}++;
		$self->violation('history', "$where is led by $leader, who was not told so",
			$term, map { $_->{op} } values %$told)
		  if $told ? !$told->{$leader} : !$bids{$el}{$leader};
		$self->violation('history', "$where was rolled back", $told->{$leader}->{op}, $term)
		  if $told && $told->{$leader} && $told->{$leader}->{fate} eq 'refused';
		my $reason = $term->{reason} // '';
		if (!$term->{ended})
		{
			$self->violation('history', "$where and epoch $open{$el} have both not ended", $term)
			  if $open{$el};
			$open{$el} = $epoch;
		}
		elsif ($reason eq 'released')
		{
			$self->violation('history', "$where was released by nobody", $term)
			  unless $released{"$el $epoch"};
		}
		elsif ($reason eq 'deposed')
		{
			$self->violation('history', "$where was deposed by nobody", $term)
			  unless $deposed{$el};
		}
		elsif ($reason eq 'session_ended')
		{
			$self->violation('history', "$where is no session's", $term)
			  if $told && $told->{$leader} && $told->{$leader}->{kind} ne 'session';
		}
		elsif ($reason ne 'expired')
		{
			$self->violation('history', "$where ended as \"$reason\"", $term);
		}
		foreach my $op (@{ $self->by_token($el, $epoch) })
		{
			$self->violation('history', "$where goes on after its release", $op, $term)
			  if !$term->{ended} && $op->{op} eq 'release' && $op->{out} eq 'ok'
			  && $op->{val} && $self->must_have($srv, $op);
		}
	}
	foreach my $el (keys %open)
	{
		my ($newest) = sort { $b->{ep} <=> $a->{ep} } grep { $_->{el} eq $el }
		  @{ $self->{history}->{$srv} };
		$self->violation('history', "history of $srv: an older term of $el has not ended", $newest)
		  if $newest->{ep} != $open{$el};
	}
	return;
}

#
# Faults
#

# Was something refused, or told to be over, because of it?
sub rejection
{
	my ($op) = @_;
	return 1 if ($op->{st} // '') =~ /^LE00|^0A000$/;
	return 0 unless $op->{out} eq 'ok' && defined $op->{ep};
	return 1 if $op->{op} eq 'renew' && !$op->{lead};
	return 1 if $op->{op} =~ /^(?:release|check|metadata)$/ && !$op->{val};
	return 0;
}

sub count_faults
{
	my ($self) = @_;
	my @rejections = grep { rejection($_) } @{ $self->{ops} };
	my @refused = grep { ($_->{st} // '') =~ /^LE00/ } @{ $self->{ops} };

	$self->count('rejections', scalar @rejections);
	$self->count('refused by the fence', scalar @refused);
	$self->{faults} = {};
	foreach my $fault (@{ $self->{fault} })
	{
		my $of = $self->{faults}->{ $fault->{kind} } //=
		  { tried => 0, confirmed => 0, rejections => 0 };

		$of->{tried}++;
		next unless $fault->{confirmed};
		$of->{confirmed}++;
		$self->count('faults');
		my @meanwhile = grep {
			$_->{t1} >= $fault->{t0} && $_->{t1} <= $fault->{t1} + ($fault->{after} // 1)
		} @rejections;
		$of->{rejections} += @meanwhile;
		$of->{own} += grep { $_->{c} =~ /^c$fault->{slot}\./ } @meanwhile
		  if defined $fault->{slot};
	}
	return;
}

1;

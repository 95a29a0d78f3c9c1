-- pgbench: its standard transaction, and two events of it: one without an order, and the
-- balance of the account, in the order of the account. One in fifty is rolled back at the
-- end; of these neither a history row nor an event may remain. Few accounts, so that each
-- has many events.
\set aid random(1, 5 * :scale)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
\set fate random(1, 50)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid \gset
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP)
	RETURNING history_id \gset
SELECT outbox_id FROM outbox.enqueue('history',
	jsonb_build_object('history_id', :history_id, 'tid', :tid, 'bid', :bid, 'aid', :aid, 'delta', :delta),
	aggregate_type => 'account', aggregate_id => CAST(:aid AS text));
SELECT outbox_id FROM outbox.enqueue('balance',
	jsonb_build_object('history_id', :history_id, 'aid', :aid, 'delta', :delta, 'balance', :abalance),
	queue => 'accounts', partition_key => CAST(:aid AS text));
\if :fate > 1
COMMIT;
\else
ROLLBACK;
\endif

-- The bank once more, by hand: a producer that means to send its event itself. The
-- event is born leased to it. Its session ends before it has sent anything.
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + 100 WHERE aid = 1 RETURNING abalance \gset
UPDATE pgbench_tellers SET tbalance = tbalance + 100 WHERE tid = 1;
UPDATE pgbench_branches SET bbalance = bbalance + 100 WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, 1, 100, CURRENT_TIMESTAMP)
	RETURNING history_id \gset
SELECT outbox_id FROM outbox.enqueue_and_claim('dealer', 'history',
	jsonb_build_object('history_id', :history_id, 'tid', 1, 'bid', 1, 'aid', 1, 'delta', 100),
	aggregate_type => 'account', aggregate_id => '1', lease => '1 second');
SELECT outbox_id FROM outbox.enqueue('balance',
	jsonb_build_object('history_id', :history_id, 'aid', 1, 'delta', 100, 'balance', :abalance),
	queue => 'accounts', partition_key => '1');
COMMIT;

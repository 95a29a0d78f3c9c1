--
-- claim with wait, and wait_for_work: where they are refused, and that neither waits when
-- there is something to do. How waiting ends is in test/t/016_wait.pl.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('a'), outbox.create_queue('paused', paused => true);

-- Something is claimable: neither waits, however long it might.
SELECT created FROM outbox.enqueue('m', '1');
CALL outbox.wait_for_work('1 day');
CALL outbox.wait_for_work('1 day', '{a, default}');
SELECT count(*) FROM outbox.claim('w', wait => '1 day');
-- Nothing is: the time is up at once, or soon.
CALL outbox.wait_for_work('0');
CALL outbox.wait_for_work('1 ms');
SELECT count(*) FROM outbox.claim('w', wait => '1 ms');
SELECT count(*) FROM outbox.claim('w', wait => '0');
-- What is paused or due later is not claimable.
SELECT created FROM outbox.enqueue('held', '1', 'paused');
SELECT created FROM outbox.enqueue('later', '1', deliver_at => clock_timestamp() + interval '1 year');
CALL outbox.wait_for_work('1 ms', '{paused, default}');
SELECT count(*) FROM outbox.claim('w', queues => '{paused, default}', wait => '1 ms');

-- Bad arguments.
SELECT t.try($$CALL outbox.wait_for_work(NULL)$$);
SELECT t.try($$CALL outbox.wait_for_work('-1 s')$$);
SELECT t.try($$CALL outbox.wait_for_work('1 ms', '{}')$$);
SELECT t.try($$SELECT outbox.claim('w', wait => '-1 s')$$);
SELECT t.try($$SELECT outbox.claim('w', wait => NULL)$$);
CALL outbox.wait_for_work('1 s', '{nowhere}');
CALL outbox.wait_for_work('1 s', '{a, NULL}');
CALL outbox.wait_for_work('1 s', '{{a}, {default}}');

-- In somebody's transaction.
\set VERBOSITY sqlstate
BEGIN;
CALL outbox.wait_for_work('1 day');
ROLLBACK;
CREATE FUNCTION t.waits() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL outbox.wait_for_work('1 day'); END $$;
SELECT t.waits();
-- After something was written: the transaction is not ended behind its back.
DO $$ BEGIN CREATE TABLE t.written (i int); CALL outbox.wait_for_work('1 day'); END $$;
SELECT to_regclass('t.written');
-- In a procedure that has written nothing it may.
DO $$ BEGIN CALL outbox.wait_for_work('1 ms'); CREATE TABLE t.written (i int); END $$;
SELECT to_regclass('t.written');

-- Isolation levels.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM outbox.claim('w', wait => '1 ms');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM outbox.claim('w', wait => '1 ms');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM outbox.claim('w', wait => '0');
ROLLBACK;
SET default_transaction_isolation = 'serializable';
CALL outbox.wait_for_work('1 ms');
RESET default_transaction_isolation;

-- Rights: workers only.
SET ROLE outbox_executor;
CALL outbox.wait_for_work('0');
SET ROLE outbox_ingest;
CALL outbox.wait_for_work('0');
RESET ROLE;

-- A statement_timeout ends the wait, the longest one too; nothing is left behind.
SET outbox.max_delay = '24855 d';
SET statement_timeout = '200ms';
CALL outbox.wait_for_work('1 day');
CALL outbox.wait_for_work('68 years');
CALL outbox.wait_for_work('9223372036854775807 us');
SELECT count(*) FROM outbox.claim('w', wait => '1 day');
SELECT count(*) FROM outbox.claim('w', wait => '68 years');
SELECT count(*) FROM outbox.claim('w', wait => '9223372036854775807 us');
RESET outbox.max_delay;
RESET statement_timeout;
SELECT count(*) FROM outbox.pending WHERE claimed_by IS NOT NULL;


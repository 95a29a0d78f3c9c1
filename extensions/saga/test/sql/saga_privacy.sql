-- Protected fields in sagas and inboxes: the states, payloads and failures of this database go through the same
-- functions as messages, so a subject that is erased is erased in all of them.
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh
CREATE EXTENSION outbox_saga;
CREATE EXTENSION outbox_inbox;

SELECT saga.create('import', NULL, outbox.protect('{"person": "al@b", "step": 1}', 'al', '{person}') , '00000000-0000-4000-8000-0000000000aa');
SELECT saga.save('00000000-0000-4000-8000-0000000000aa', (SELECT state || outbox.protect('{"second": "bo@b"}', 'bo', '{second}') FROM saga.load('00000000-0000-4000-8000-0000000000aa')), 'running', 1, 'read');
SELECT inbox.receive('billing', '00000000-0000-4000-8000-000000000001', 'orders', 'order.placed', outbox.protect('{"email": "al@b", "n": 1}', 'al', '{email}'));
SELECT inbox.failed('billing', '00000000-0000-4000-8000-000000000002', 'why', 1, 'orders', 'order.placed', outbox.protect('{"email": "al@b", "n": 2}', 'al', '{email}'));
SELECT created FROM outbox.enqueue('mail', outbox.protect('{"to": "al@b", "cc": "none"}', 'al', '{to}'));

-- All that is stored, and none of it in plain text.
CREATE VIEW t.stored AS
	SELECT 1 AS n, 'saga' AS place, state AS payload FROM saga.load('00000000-0000-4000-8000-0000000000aa')
	UNION ALL SELECT 2, 'inbox', payload FROM inbox.events
	UNION ALL SELECT 3, 'failure', payload FROM inbox.failures
	UNION ALL SELECT 4, 'message', payload FROM outbox.messages WHERE event_type = 'mail';
SELECT place, payload::text ~ '@b' AS plain FROM t.stored ORDER BY n;
CREATE VIEW t.revealed AS
	SELECT n, place, regexp_replace(outbox.reveal(payload)::text, '\{"at": "[^"]*", "\$erased": true\}', '<erased>', 'g') AS revealed FROM t.stored;
SELECT place, revealed FROM t.revealed ORDER BY n;

SELECT outbox.erase_subject('al', 'request', 'the person') IS NOT NULL AS erased;
SELECT place, revealed FROM t.revealed ORDER BY n;

-- The saga goes on, and what is written now has another key.
SELECT saga.save('00000000-0000-4000-8000-0000000000aa', (SELECT state || outbox.protect('{"person": "al@c"}', 'al', '{person}') FROM saga.load('00000000-0000-4000-8000-0000000000aa')), 'running', 2, 'written');
SELECT place, revealed FROM t.revealed WHERE place = 'saga';
DROP EXTENSION outbox_inbox;

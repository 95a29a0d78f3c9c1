-- Hourly pairs of partitions, as far back as they reach; what views and look-ups need of them. psql variable: pairs.
\set ON_ERROR_STOP 1
CREATE PROCEDURE make_pairs(n int) LANGUAGE plpgsql AS $$
DECLARE
	id text := $f$ (SELECT (substr(ms, 1, 8) || '-' || substr(ms, 9, 4) || '-0000-0000-000000000000')::uuid
		FROM lpad(to_hex((1000 * extract(epoch FROM $1))::bigint), 12, '0') ms) $f$;
	lower uuid;
	upper uuid;
	first timestamptz := date_trunc('hour', now()) - interval '30 days';	-- before the fixture
BEGIN
	FOR i IN 1..n LOOP
		EXECUTE 'SELECT ' || id INTO lower USING first - i * interval '1 hour';
		EXECUTE 'SELECT ' || id INTO upper USING first - (i - 1) * interval '1 hour';
		EXECUTE format('CREATE TABLE outbox.messages_b%s PARTITION OF outbox.messages (PRIMARY KEY (outbox_id)) FOR VALUES FROM (%L) TO (%L)', i, lower, upper);
		EXECUTE format('CREATE TABLE outbox.attempts_b%s PARTITION OF outbox.attempts (PRIMARY KEY (outbox_id, attempt_no)) FOR VALUES FROM (%L) TO (%L)', i, lower, upper);
		EXECUTE format('CREATE TABLE outbox.events_b%s PARTITION OF outbox.events (PRIMARY KEY (event_id)) FOR VALUES FROM (%L) TO (%L)', i, lower, upper);
		COMMIT;
	END LOOP;
END
$$;
CALL make_pairs(:pairs);

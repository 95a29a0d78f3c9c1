# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# What a claim of 100, their completion and an enqueue of 100 cost with much work lying
# there: due, scheduled, or leased by others at the head. Each kind of backlog has a database
# of its own, so that all of them are measured in turn, side by side; what is claimed is
# enqueued again, so that it stays as it is.

backlogs=('1 k due' '100 k due' 'many due' 'many scheduled' '10 k leased')

measure_backlog() {
	local round variant i backlog
	condition backlog "many = $rows; batch 100, 1 worker, 300 B, durable commits; loaded by INSERT ... SELECT, then vacuumed"
	for variant in "${backlog_variants[@]}"; do
		for i in "${!backlogs[@]}"; do
			say "backlog, $variant: ${backlogs[i]}"
			make_backlog "$variant" "${variant}_$i" "${backlogs[i]}"
		done
	done
	for ((round = 1; round <= rounds; round++)); do
		say "backlog, round $round of $rounds"
		for variant in "${backlog_variants[@]}"; do
			for i in $(in_turn "$round" "${!backlogs[@]}"); do
				measure_one_backlog "$variant" "${variant}_$i" "${backlogs[i]}" "$round"
			done
		done
	done
	targets_backlog
}

# measure_one_backlog VARIANT DATABASE BACKLOG ROUND
measure_one_backlog() {
	database=$2 as_variant=$3 drive backlog "$1" "$1" "$4" 'claim p50 ms,complete p50 ms,enqueue p50 ms,server us' \
		cycle=cde batch=100 seconds="$(seconds_or 1 0.5)" drain=0
}

# make_backlog VARIANT DATABASE BACKLOG
make_backlog() {
	make_database "$1" "$2"
	case $3 in
		'1 k due') load_rows "$1" 1 1000 "- interval '1 hour'" ;;
		'100 k due') load_rows "$1" 1 100000 "- interval '1 hour'" ;;
		'many due') load_rows "$1" 1 "$rows" "- interval '1 hour'" ;;
		'many scheduled')
			load_rows "$1" 1 1000 "- interval '1 hour'"
			load_rows "$1" 1001 "$rows" "+ interval '1 day'"
			;;
		'10 k leased')
			load_rows "$1" 1 11000 "- interval '1 hour'"
			query "SELECT count(*) FROM $1.claim('another', 10000, '1 day', ARRAY['bench'])" >/dev/null
			;;
	esac
	query "VACUUM ANALYZE"
}

# load_rows VARIANT FROM TO DUE: by hand, as the owner; DUE in terms of now
load_rows() {
	local columns="outbox_id, queue, event_type, payload, headers, created_at" values tables
	values="id, 'bench', 'order.placed', '{\"note\": \"$(printf 'x%.0s' {1..285})\"}'::jsonb, '{}'::jsonb, now()"
	case $1 in
		outbox) tables="
			INSERT INTO outbox.messages ($columns, event_id, priority) SELECT $values, id, 0 FROM row;
			INSERT INTO outbox.pending (outbox_id, queue, next_attempt_at, created_at) SELECT id, 'bench', due, now() FROM row" ;;
		baseline | batched) tables="
			ALTER TABLE baseline.pending DISABLE TRIGGER tell;
			INSERT INTO baseline.pending ($columns, aggregate_id, next_attempt_at) SELECT $values, '', due FROM row;
			ALTER TABLE baseline.pending ENABLE TRIGGER tell" ;;
		control) tables="
			INSERT INTO control.messages ($columns, aggregate_id) SELECT $values, '' FROM row;
			INSERT INTO control.pending (outbox_id, queue, next_attempt_at) SELECT id, 'bench', due FROM row" ;;
	esac
	psql -XAtq -v ON_ERROR_STOP=1 <<-END
		BEGIN;
		CREATE TEMPORARY VIEW row AS
			SELECT now() $4 + i * interval '1 microsecond' AS due, (lpad(to_hex((1000 * extract(epoch FROM now()))::bigint), 12, '0')
				|| '70008' || lpad(to_hex(i), 15, '0'))::uuid AS id
			FROM generate_series($2, $3) i;
		$tables;
		DROP VIEW row;
		COMMIT
	END
	enqueued[$PGDATABASE]=$((enqueued["$PGDATABASE"] + $3 - $2 + 1))
}

targets_backlog() {
	local backlog metric
	for metric in 'claim p50 ms' 'complete p50 ms' 'enqueue p50 ms'; do
		compare backlog '1 k due' "$metric" more
		for backlog in "${backlogs[@]:1}"; do
			target_if_measured ratio backlog outbox "$metric" "$backlog" '1 k due' '<=' 1.5
		done
	done
	for backlog in "${backlogs[@]}"; do
		target_if_measured quantile backlog outbox 'claim p50 ms' "$backlog" 0.5 '<=' 3
	done
}

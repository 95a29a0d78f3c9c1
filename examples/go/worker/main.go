// Delivers each message at least once. SIGTERM finishes the batch at hand and leaves no lease;
// the messages of a worker that dies, or loses its connection or leases, go to another worker.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const claim = `SELECT array_agg(outbox_id::text), array_agg(lease_token::text),
	array_agg(event_id::text), array_agg(payload::text) FROM outbox.claim($1, 20, '30 s')`
const complete = `SELECT FROM outbox.complete_batch($1, $2::uuid[], $3::uuid[], $4::text[],
	error_codes => array_replace($5::text[], '', NULL)) WHERE error IS NOT NULL`

// work returns nil when it is to stop. What it claims it also reports: ctx is never cancelled.
func work(ctx, stopping context.Context, me string) error {
	db, err := connect(ctx) // and LISTEN, before the first claim
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	for pause := 100 * time.Millisecond; stopping.Err() == nil; pause = min(2*pause, time.Second) {
		var ids, tokens, events, payloads []string // nil if there is nothing to claim
		if err := db.QueryRow(ctx, claim, me).Scan(&ids, &tokens, &events, &payloads); err != nil {
			return err
		}
		if ids == nil {
			idle, cancel := context.WithTimeout(stopping, pause)
			_, _ = db.WaitForNotification(idle) // of a lost connection the next claim tells
			cancel()
			continue
		}
		states, codes := deliverAll(events, payloads) // takes no longer than one, well within the lease
		if lost, err := db.Exec(ctx, complete, me, ids, tokens, states, codes); err != nil {
			return err
		} else if n := lost.RowsAffected(); n > 0 { // P7002: other workers have these messages
			log.Printf("%d of %d were not recorded", n, len(ids))
		}
		pause = 50 * time.Millisecond
	}
	return nil
}

func main() {
	stopping, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	host, _ := os.Hostname()
	for stopping.Err() == nil {
		err := work(context.Background(), stopping, fmt.Sprintf("%s:%d", host, os.Getpid()))
		if err != nil { // a lost connection: connect, LISTEN and claim again
			log.Print("trying again: ", err)
			time.Sleep(time.Second)
		}
	}
}

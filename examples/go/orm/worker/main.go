// Ships each order exactly once, with GORM: the shipment and the report of its message are one
// transaction. A worker that dies, or whose lease is lost, has shipped nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/outbox-examples/orm"
	"gorm.io/gorm"
)

const claim = `SELECT outbox_id, lease_token, (payload ->> 'id')::bigint AS order_id
	FROM outbox.claim(?, 10, '30 s')`

// work claims a batch, which commits at once, and handles it. It answers how many messages these were.
func work(db *gorm.DB, me string) (int, error) {
	var batch []message
	err := db.Raw(claim, me).Scan(&batch).Error
	for _, m := range batch {
		err = errors.Join(err, handle(db, me, m))
	}
	return len(batch), err
}

func main() {
	stopping, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	host, _ := os.Hostname()
	me := fmt.Sprintf("%s:%d", host, os.Getpid())
	db, err := orm.Open()
	if err != nil {
		log.Fatal(err)
	}
	for pause := 100 * time.Millisecond; stopping.Err() == nil; pause = min(2*pause, time.Second) {
		count, err := work(db, me)
		if err != nil { // a lost connection: the pool makes another one
			log.Print("trying again: ", err)
		}
		if count > 0 {
			pause = 50 * time.Millisecond
			continue
		}
		select {
		case <-stopping.Done():
		case <-time.After(pause):
		}
	}
}

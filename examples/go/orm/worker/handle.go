package main

import (
	"errors"

	"example.com/outbox-examples/orm"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
)

type message struct {
	OutboxID, LeaseToken string
	OrderID              int64
}

// handle ships an order and reports its message, both or neither. If that fails it reports this.
func handle(db *gorm.DB, me string, m message) error {
	err := db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&orm.Shipment{OrderID: m.OrderID}).Error; err != nil {
			return err
		}
		complete := "SELECT outbox.complete(?::uuid, ?::uuid, ?, 'DISPATCHED')"
		return tx.Exec(complete, m.OutboxID, m.LeaseToken, me).Error
	})
	failure := &pgconn.PgError{Code: "NO_ANSWER"}
	if err == nil || errors.As(err, &failure) && failure.Code == "P7002" {
		return nil // P7002: another worker has the message, and ships the order
	}
	// What failed is rolled back. Unlike complete, complete_batch does not raise P7002.
	return db.Exec(`SELECT outbox.complete_batch(?, ARRAY[?::uuid], ARRAY[?::uuid], '{RETRYABLE}',
		error_codes => ARRAY[?])`, me, m.OutboxID, m.LeaseToken, failure.Code).Error
}

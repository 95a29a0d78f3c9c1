// Places an order for each item that is named. An order and its message are stored together or not
// at all, and an order that fails leaves the pool a connection that is ready for the next one.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type order struct {
	ID   int64  `json:"id"`
	Item string `json:"item"`
}

func placeOrder(ctx context.Context, db *pgxpool.Pool, item string) (order, error) {
	placed := order{Item: item}
	// Commits, or rolls back if an error is returned.
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		insert := "INSERT INTO orders (item) VALUES ($1) RETURNING id"
		if err := tx.QueryRow(ctx, insert, item).Scan(&placed.ID); err != nil {
			return err
		}
		payload, err := json.Marshal(placed)
		if err != nil {
			return err
		}
		enqueue := `SELECT outbox.enqueue('order.placed', $1::jsonb,
			aggregate_type => 'order', aggregate_id => $2)`
		_, err = tx.Exec(ctx, enqueue, string(payload), strconv.FormatInt(placed.ID, 10))
		return err
	})
	return placed, err
}

func main() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	status := 0
	for _, item := range os.Args[1:] {
		if placed, err := placeOrder(ctx, db, item); err != nil {
			log.Printf("no order of %s: %v", item, err)
			status = 1
		} else {
			fmt.Println("order", placed.ID)
		}
	}
	db.Close()
	os.Exit(status)
}

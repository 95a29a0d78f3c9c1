// Places an order for each item that is named, with GORM. The message is stored by the order's own
// transaction: together with the order or not at all.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"

	"example.com/outbox-examples/orm"
	"gorm.io/gorm"
)

func placeOrder(db *gorm.DB, item string) (orm.Order, error) {
	order := orm.Order{Item: item}
	// Commits, or rolls back if an error is returned.
	err := db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&order).Error; err != nil {
			return err
		}
		payload, err := json.Marshal(order)
		if err != nil {
			return err
		}
		return tx.Exec(`SELECT outbox.enqueue('order.placed', ?::jsonb,
			aggregate_type => 'order', aggregate_id => ?)`,
			string(payload), strconv.FormatInt(order.ID, 10)).Error
	})
	return order, err
}

func main() {
	db, err := orm.Open()
	if err != nil {
		log.Fatal(err)
	}
	status := 0
	for _, item := range os.Args[1:] {
		if order, err := placeOrder(db, item); err != nil {
			log.Printf("no order of %s: %v", item, err)
			status = 1
		} else {
			fmt.Println("order", order.ID)
		}
	}
	os.Exit(status)
}

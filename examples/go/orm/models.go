// Package orm has the tables of schema.sql, as GORM maps them.
package orm

import (
	"os"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

type Order struct {
	ID   int64  `json:"id"`
	Item string `json:"item"`
}

type Shipment struct {
	OrderID int64
}

// Open has GORM make no prepared statements: PgBouncer before 1.21 has none in transaction mode.
func Open() (*gorm.DB, error) {
	config := postgres.Config{DSN: os.Getenv("DATABASE_URL"), PreferSimpleProtocol: true}
	return gorm.Open(postgres.New(config), &gorm.Config{})
}

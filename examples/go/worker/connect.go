package main

import (
	"context"
	"errors"
	"os"

	"github.com/jackc/pgx/v5"
)

// connect returns a connection that LISTENs, unless POOLED is set: DATABASE_URL then leads through
// a pool in transaction mode, which has no LISTEN, and the worker looks for messages now and then.
func connect(ctx context.Context) (*pgx.Conn, error) {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil || os.Getenv("POOLED") != "" {
		return db, err
	}
	if _, err := db.Exec(ctx, "LISTEN outbox_pending"); err != nil {
		return nil, errors.Join(err, db.Close(ctx))
	}
	return db, nil
}

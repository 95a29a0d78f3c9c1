//! Places an order for each item that is named. An order and its message are stored together or
//! not at all, and an order that fails leaves a connection that is ready for the next one.

use serde_json::json;
use std::{env, process::ExitCode};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{Client, Error, NoTls};

const ENQUEUE: &str = "SELECT outbox_id FROM outbox.enqueue('order.placed', $1,
    aggregate_type => 'order', aggregate_id => $2)";

async fn place_order(db: &mut Client, item: &str) -> Result<i64, Error> {
    let tx = db.transaction().await?; // rolls back when it is dropped
    // query_typed makes no prepared statement: PgBouncer before 1.21 has none in transaction mode.
    let insert = "INSERT INTO orders (item) VALUES ($1) RETURNING id";
    let id: i64 = tx.query_typed(insert, &[(&item, Type::TEXT)]).await?[0].get(0);
    let payload = Json(json!({"id": id, "item": item}));
    tx.query_typed(ENQUEUE, &[(&payload, Type::JSONB), (&id.to_string(), Type::TEXT)]).await?;
    tx.commit().await?;
    Ok(id)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (mut db, connection) = tokio_postgres::connect(&env::var("DATABASE_URL")?, NoTls).await?;
    tokio::spawn(connection);
    let mut status = ExitCode::SUCCESS;
    for item in env::args().skip(1) {
        match place_order(&mut db, &item).await {
            Ok(id) => println!("order {id}"),
            Err(error) => {
                let why = error.as_db_error().map_or(error.to_string(), |e| e.to_string());
                eprintln!("no order of {item}: {why}");
                status = ExitCode::FAILURE;
            }
        }
    }
    Ok(status)
}

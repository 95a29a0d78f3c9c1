//! Places an order for each item that is named, with Diesel. The message is stored by the order's
//! own transaction: together with the order or not at all.

mod models;

use diesel::prelude::*;
use diesel::sql_types::{Jsonb, Text};
use models::orders;
use serde_json::json;
use std::process::ExitCode;

const ENQUEUE: &str = "SELECT outbox.enqueue('order.placed', $1,
    aggregate_type => 'order', aggregate_id => $2)";

fn place_order(db: &mut PgConnection, item: &str) -> QueryResult<i64> {
    db.transaction(|db| {
        let id: i64 = diesel::insert_into(orders::table)
            .values(orders::item.eq(item))
            .returning(orders::id)
            .get_result(db)?;
        diesel::sql_query(ENQUEUE)
            .bind::<Jsonb, _>(json!({"id": id, "item": item}))
            .bind::<Text, _>(id.to_string())
            .execute(db)?;
        Ok(id)
    })
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut db = models::connect()?;
    let mut status = ExitCode::SUCCESS;
    for item in std::env::args().skip(1) {
        match place_order(&mut db, &item) {
            Ok(id) => println!("order {id}"),
            Err(error) => {
                eprintln!("no order of {item}: {error}");
                status = ExitCode::FAILURE;
            }
        }
    }
    Ok(status)
}

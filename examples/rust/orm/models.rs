//! The tables of schema.sql, as Diesel maps them.

use diesel::connection::{CacheSize, Connection};
use diesel::pg::PgConnection;
use diesel::prelude::*;

diesel::table! {
    orders (id) {
        id -> BigInt,
        item -> Text,
    }
}

diesel::table! {
    shipments (order_id) {
        order_id -> BigInt,
    }
}

/// Without prepared statements: PgBouncer before 1.21 has none in transaction mode.
pub fn connect() -> ConnectionResult<PgConnection> {
    let url = std::env::var("DATABASE_URL").expect("DATABASE_URL is set");
    let mut db = PgConnection::establish(&url)?;
    db.set_prepared_statement_cache_size(CacheSize::Disabled);
    Ok(db)
}

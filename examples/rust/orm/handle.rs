//! What the worker does with a message. Replace ship() by what your messages are for.

use crate::models::shipments;
use diesel::prelude::*;
use diesel::result::Error::RollbackTransaction;
use diesel::sql_query;
use diesel::sql_types::{BigInt, Nullable, Text};
use uuid::Uuid;

const REPORT: &str = "SELECT error FROM outbox.complete_batch($1, ARRAY[$2], ARRAY[$3],
    ARRAY[$4]::text[], error_messages => ARRAY[$5])";

#[derive(QueryableByName)]
pub struct Message {
    #[diesel(sql_type = diesel::sql_types::Uuid)]
    outbox_id: Uuid,
    #[diesel(sql_type = diesel::sql_types::Uuid)]
    lease_token: Uuid,
    #[diesel(sql_type = BigInt)]
    order_id: i64,
}

#[derive(QueryableByName)]
struct Report {
    #[diesel(sql_type = Nullable<Text>)]
    error: Option<String>, // P7002: the lease was lost, another worker has the message
}

impl Message {
    /// Ships an order and reports its message, both or neither. If that fails it reports this.
    pub fn handle(&self, db: &mut PgConnection, me: &str) -> QueryResult<()> {
        let shipped = db.transaction(|db| {
            self.ship(db)?;
            let reported = self.report(db, me, None)?;
            reported.error.map_or(Ok(()), |_| Err(RollbackTransaction))
        });
        match shipped {
            Ok(()) | Err(RollbackTransaction) => Ok(()),
            Err(e) => self.report(db, me, Some(e.to_string())).map(drop),
        }
    }

    fn ship(&self, db: &mut PgConnection) -> QueryResult<usize> {
        let shipment = shipments::order_id.eq(self.order_id);
        diesel::insert_into(shipments::table).values(shipment).execute(db)
    }

    /// Reports that it is done, or why not.
    fn report(&self, db: &mut PgConnection, me: &str, why: Option<String>) -> QueryResult<Report> {
        sql_query(REPORT)
            .bind::<Text, _>(me)
            .bind::<diesel::sql_types::Uuid, _>(self.outbox_id)
            .bind::<diesel::sql_types::Uuid, _>(self.lease_token)
            .bind::<Text, _>(if why.is_none() { "DISPATCHED" } else { "RETRYABLE" })
            .bind::<Nullable<Text>, _>(why)
            .get_result(db)
    }
}

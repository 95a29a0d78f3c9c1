use crate::deliver::Outcome;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

const COMPLETE: &str = "SELECT outbox_id, error FROM outbox.complete_batch($1, $2, $3, $4::text[],
    error_codes => $5) WHERE error IS NOT NULL";

/// Reports how the deliveries of a batch have ended.
pub async fn report(db: &Client, me: &str, batch: &[Row], all: Vec<Outcome>) -> Result<(), Error> {
    let ids: Vec<Uuid> = batch.iter().map(|row| row.get("outbox_id")).collect();
    let tokens: Vec<Uuid> = batch.iter().map(|row| row.get("lease_token")).collect();
    let (states, codes): (Vec<&str>, Vec<Option<String>>) = all.into_iter().unzip();
    let report: [(&(dyn ToSql + Sync), Type); 5] = [
        (&me, Type::TEXT),
        (&ids, Type::UUID_ARRAY),
        (&tokens, Type::UUID_ARRAY),
        (&states, Type::TEXT_ARRAY),
        (&codes, Type::TEXT_ARRAY),
    ];
    for row in db.query_typed(COMPLETE, &report).await? {
        // P7002: the lease was lost, and another worker has the message.
        eprintln!("not recorded: {} {}", row.get::<_, Uuid>(0), row.get::<_, &str>(1));
    }
    Ok(())
}

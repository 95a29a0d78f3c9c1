//! Ships each order exactly once, with Diesel: the shipment and the report of its message are one
//! transaction. A worker that dies, or whose lease is lost, has shipped nothing.

mod handle;
mod models;

use diesel::prelude::*;
use diesel::sql_types::Text;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed};
use std::{error::Error, thread::sleep, time::Duration};

const CLAIM: &str = "SELECT outbox_id, lease_token, (payload ->> 'id')::bigint AS order_id
    FROM outbox.claim($1, 10, '30 s')";

fn work(me: &str, stopping: &AtomicBool) -> Result<(), Box<dyn Error>> {
    let mut db = models::connect()?;
    let mut pause = Duration::from_millis(100);
    while !stopping.load(Relaxed) {
        // A statement by itself: it is committed before anything is shipped.
        let claim = diesel::sql_query(CLAIM).bind::<Text, _>(me);
        let batch: Vec<handle::Message> = claim.load(&mut db)?;
        for message in &batch {
            message.handle(&mut db, me)?;
        }
        if !batch.is_empty() {
            pause = Duration::from_millis(100);
            continue;
        }
        sleep(pause);
        pause = (2 * pause).min(Duration::from_secs(1));
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let me = format!("{}:{}", hostname::get()?.display(), std::process::id());
    let stopping = Arc::new(AtomicBool::new(false));
    flag::register(SIGINT, stopping.clone())?;
    flag::register(SIGTERM, stopping.clone())?;
    while !stopping.load(Relaxed) {
        if let Err(error) = work(&me, &stopping) {
            eprintln!("trying again: {error}"); // with another connection
            sleep(Duration::from_secs(1));
        }
    }
    Ok(())
}

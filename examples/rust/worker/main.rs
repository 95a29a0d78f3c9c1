//! Delivers each message at least once. SIGTERM finishes the batch at hand and leaves no lease;
//! the messages of a worker that dies, or loses its connection or leases, go to another worker.

mod connect;
mod deliver;
mod report;

use futures_util::future::join_all;
use std::{sync::LazyLock, time::Duration};
use tokio::signal::{ctrl_c, unix::SignalKind, unix::signal};
use tokio::{select, sync::watch, time::sleep};
use tokio_postgres::{Error, types::Type};

// By query_typed, without prepared statements: PgBouncer before 1.21 has none in transaction mode.
const CLAIM: &str = "SELECT outbox_id, lease_token, event_id, payload::text
    FROM outbox.claim($1, 20, '30 s')";

async fn work(me: &str, stopping: &mut watch::Receiver<bool>) -> Result<(), Error> {
    let (db, woken) = connect::connect().await?; // and LISTEN, before the first claim
    let mut pause = Duration::from_millis(100);
    while !*stopping.borrow() {
        let batch = db.query_typed(CLAIM, &[(&me, Type::TEXT)]).await?;
        if batch.is_empty() {
            select! {
                _ = woken.notified() => {}
                _ = stopping.changed() => {}
                _ = sleep(pause) => pause = (2 * pause).min(Duration::from_secs(1)),
            }
            continue;
        }
        pause = Duration::from_millis(100);
        // Side by side, each with a time limit: together they end well within the lease.
        let outcomes = join_all(batch.iter().map(deliver::deliver)).await;
        report::report(&db, me, &batch, outcomes).await?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    LazyLock::force(&deliver::RECEIVER);
    let me = format!("{}:{}", hostname::get()?.display(), std::process::id());
    let mut terminate = signal(SignalKind::terminate())?;
    let (stop, mut stopping) = watch::channel(false);
    tokio::spawn(async move {
        select! { _ = terminate.recv() => {}, _ = ctrl_c() => {} }
        stop.send_replace(true);
    });
    while !*stopping.borrow() {
        if let Err(error) = work(&me, &mut stopping).await {
            eprintln!("trying again: {error:?}"); // connect, LISTEN and claim again
            sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}

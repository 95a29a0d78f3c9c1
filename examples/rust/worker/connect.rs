use futures_util::future::poll_fn;
use std::{env, sync::Arc};
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client, Error, NoTls};

/// A client that LISTENs, and what wakes the worker: a notification, and the end of the connection.
/// With POOLED, DATABASE_URL leads through a pool in transaction mode, which has no LISTEN; then the
/// worker looks for messages now and then.
pub async fn connect() -> Result<(Client, Arc<Notify>), Error> {
    let url = env::var("DATABASE_URL").expect("DATABASE_URL is set");
    let (client, mut connection) = tokio_postgres::connect(&url, NoTls).await?;
    let woken = Arc::new(Notify::new());
    let wake = woken.clone();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                wake.notify_one();
            }
        }
        wake.notify_one();
    });
    if env::var_os("POOLED").is_none() {
        client.batch_execute("LISTEN outbox_pending").await?;
    }
    Ok((client, woken))
}

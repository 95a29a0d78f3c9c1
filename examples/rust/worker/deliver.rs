use reqwest::Client;
use std::{env, sync::LazyLock, time::Duration};
use tokio_postgres::Row;
use uuid::Uuid;

/// What is reported: the state of the attempt, and its error code.
pub type Outcome = (&'static str, Option<String>);

static HTTP: LazyLock<Client> = LazyLock::new(|| {
    let builder = Client::builder().timeout(Duration::from_secs(5));
    builder.build().expect("an HTTP client")
});

/// A worker without it ends before it claims.
pub static RECEIVER: LazyLock<String> =
    LazyLock::new(|| env::var("RECEIVER_URL").expect("RECEIVER_URL is set"));

/// POSTs one message to RECEIVER_URL. Replace it by what your messages are for.
/// The receiver knows a second delivery by the Idempotency-Key, and takes no effect twice.
pub async fn deliver(message: &Row) -> Outcome {
    let event_id: Uuid = message.get("event_id");
    let payload: String = message.get("payload");
    let request = HTTP
        .post(RECEIVER.as_str())
        .header("Content-Type", "application/json")
        .header("Idempotency-Key", event_id.to_string())
        .body(payload);
    match request.send().await.map(|response| response.status().as_u16()) {
        Ok(200 | 201 | 202 | 204) => ("DISPATCHED", None),
        Ok(status @ (400 | 422)) => ("FAILED", Some(format!("HTTP_{status}"))),
        Ok(status) => ("RETRYABLE", Some(format!("HTTP_{status}"))),
        // Refused, too slow, broken off: it may have arrived.
        Err(_) => ("RETRYABLE", Some("NO_ANSWER".into())),
    }
}

// Delivers one message: POSTs it to RECEIVER_URL. Replace it by what your messages are for.
// The receiver knows a second delivery by the Idempotency-Key, and takes no effect twice.
const receiver = new URL(process.env.RECEIVER_URL); // a worker without it ends before it claims

export async function deliver({ event_id, payload }) {
  try {
    const response = await fetch(receiver, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Idempotency-Key': event_id },
      body: JSON.stringify(payload),
      signal: AbortSignal.timeout(5_000),
    });
    await response.arrayBuffer(); // the connection can be used again
    if (response.ok) return { state: 'DISPATCHED', errorCode: null };
    const state = [400, 422].includes(response.status) ? 'FAILED' : 'RETRYABLE';
    return { state, errorCode: `HTTP_${response.status}` };
  } catch (error) { // refused, too slow, broken off: it may have arrived
    return { state: 'RETRYABLE', errorCode: error.cause?.code ?? error.name };
  }
}

package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

var client = http.Client{Timeout: 5 * time.Second}

// A worker without it ends before it claims.
var receiver = variable("RECEIVER_URL")

func variable(name string) string {
	value := os.Getenv(name)
	if value == "" {
		fmt.Fprintln(os.Stderr, name, "is not set")
		os.Exit(2)
	}
	return value
}

// deliver POSTs one message to RECEIVER_URL. Replace it by what your messages are for.
// The receiver knows a second delivery by the Idempotency-Key, and takes no effect twice.
func deliver(eventID, payload string) (state, errorCode string) {
	request, err := http.NewRequest(http.MethodPost, receiver, strings.NewReader(payload))
	if err != nil {
		return "RETRYABLE", "BAD_URL"
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", eventID)
	response, err := client.Do(request)
	if err != nil { // refused, too slow, broken off: it may have arrived
		return "RETRYABLE", "NO_ANSWER"
	}
	defer response.Body.Close()
	switch code := response.StatusCode; code {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return "DISPATCHED", ""
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return "FAILED", fmt.Sprintf("HTTP_%d", code)
	default:
		return "RETRYABLE", fmt.Sprintf("HTTP_%d", code)
	}
}

// deliverAll delivers side by side, so that a batch takes no longer than one message.
func deliverAll(eventIDs, payloads []string) (states, errorCodes []string) {
	states, errorCodes = make([]string, len(eventIDs)), make([]string, len(eventIDs))
	var all sync.WaitGroup
	for i := range eventIDs {
		all.Go(func() { states[i], errorCodes[i] = deliver(eventIDs[i], payloads[i]) })
	}
	all.Wait()
	return states, errorCodes
}

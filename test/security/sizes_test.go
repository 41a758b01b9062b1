package security

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestSizes: what is too large is refused before it costs much.
func TestSizes(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), sizeAttempts())
}

func configMap(name, data string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":` + data + `}`
}

func sizeAttempts() map[string]attempt {
	const mega = 1 << 20
	maps := tenant + "/configmaps"
	return map[string]attempt{
		"large header": {reason: "headers have 64 KiB", try: func(t *testing.T, w *world) {
			w.tooLarge(t, line("stranger", "GET", open, "A: "+strings.Repeat("a", 70<<10)))
		}},
		"many headers": {reason: "headers have 64 KiB together", try: func(t *testing.T, w *world) {
			w.tooLarge(t, line("stranger", "GET", open, strings.TrimSuffix(strings.Repeat("A: "+strings.Repeat("a", 100)+"\r\n", 700), "\r\n")))
		}},
		"large path": {reason: "a path counts as a header", try: func(t *testing.T, w *world) {
			w.tooLarge(t, line("stranger", "GET", "/"+strings.Repeat("a", 70<<10)))
		}},
		"long query": {reason: "the query is parsed before the caller is known", request: request{
			method: "GET", path: maps + "?labelSelector=" + strings.Repeat("a%3Db,", 4_000),
		}, code: http.StatusRequestURITooLong, message: "the limit is 16384"},
		"query that is none": {reason: "a selector that is none is not repeated in the answer and the log without end", request: request{
			method: "GET", path: maps + "?labelSelector=" + strings.Repeat("!", 16_000),
		}},
		"large token": {reason: "credentials are compared, not parsed without end", request: request{
			method: "GET", path: open, header: map[string]string{"Authorization": "Bearer " + strings.Repeat("a.", 30_000)},
		}, code: http.StatusUnauthorized},
		"large body": {reason: "a body has 3 MiB", request: request{
			as: "editor", method: "POST", path: maps, body: configMap("large", `{"a":"`+strings.Repeat("a", 4*mega)+`"}`),
		}, code: http.StatusRequestEntityTooLarge},
		"body without a length": {reason: "a body has 3 MiB, whatever it says", try: func(t *testing.T, w *world) {
			chunk := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat("a", 64<<10))
			content := line("editor", "POST", maps, "Content-Type: application/json", "Transfer-Encoding: chunked") + strings.Repeat(chunk, 80)
			if a := w.raw(t, content); len(a) > 1 || len(a) == 1 && a[0].code != http.StatusRequestEntityTooLarge {
				t.Errorf("%+v", a)
			}
		}},
		"length that is a lie": {reason: "the length is not made room for", try: func(t *testing.T, w *world) {
			for i, n := range []string{"9223372036854775807", "-1", "99999999999999999999", "0x10", "+5", "1e9"} {
				content := line("editor", "POST", maps, "Content-Type: application/json", "Content-Length: "+n)
				if i == 0 { // it is read until it is too much
					content += strings.Repeat("a", 4*mega)
				}
				for _, a := range w.raw(t, content) {
					if a.code != http.StatusBadRequest && a.code != http.StatusRequestEntityTooLarge {
						t.Errorf("%s: %d %s", n, a.code, a.body)
					}
				}
			}
		}},
		"large body of a stranger": {reason: "who may not write is answered without reading", request: request{
			as: "stranger", method: "POST", path: maps, body: configMap("large", `{"a":"`+strings.Repeat("a", 4*mega)+`"}`),
		}, code: http.StatusForbidden},
		"large object": {reason: "data has 1 MiB", request: request{
			as: "editor", method: "POST", path: maps, body: configMap("large", `{"a":"`+strings.Repeat("a", mega+1)+`"}`),
		}, code: http.StatusUnprocessableEntity},
		"large annotations": {reason: "annotations have 256 KiB", request: request{
			as: "editor", method: "POST", path: maps,
			body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"a":"` + strings.Repeat("a", 300<<10) + `"}}}`,
		}, code: http.StatusUnprocessableEntity},
		"many operations": {reason: "a JSON patch has 2,000 operations", request: request{
			as: "editor", method: "PATCH", path: open, contentType: jsonp,
			body: "[" + strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"/kind","value":"ConfigMap"},`, 2_001), ",") + "]",
		}, code: http.StatusRequestEntityTooLarge},
		"large selector": {reason: "a selector costs no more than its length", try: func(t *testing.T, w *world) {
			var terms []string
			for i := range 1_000 {
				terms = append(terms, fmt.Sprintf("a%d!%%3Db", i))
			}
			w.must(t, request{as: "chief", method: "GET", path: maps + "?limit=1&labelSelector=none,none%3Da," + strings.Join(terms, ",")}, http.StatusOK)
		}},
		"continue token of one's own": {reason: "it is a place in a list, not a key of the storage", try: func(t *testing.T, w *world) {
			for _, c := range []string{
				"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi9zZWNyZXRzL3ZhdWx0L2Nyb3duIn0", // ../../secrets/vault/crown
				"e30", "a", strings.Repeat("A", 15_000),
			} {
				if a := w.send(t, request{as: "outside", method: "GET", path: maps + "?limit=1&continue=" + c}); a.code != http.StatusForbidden {
					t.Errorf("%d %s", a.code, a.body)
				}
				if a := w.send(t, request{as: "definer", method: "GET", path: gourds + "?limit=1&continue=" + c}); a.code < 400 || a.code >= 500 {
					t.Errorf("%d %s", a.code, a.body)
				}
			}
		}},
	}
}

// tooLarge sends what is refused with 431, or by closing the connection.
func (w *world) tooLarge(t *testing.T, content string) {
	t.Helper()
	for _, a := range w.raw(t, content) {
		if a.code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%d %s", a.code, short(a.body))
		}
	}
}

package aggregator

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// healthPath tells how the servers behind are. It is no part of /readyz: this server is ready
// without them.
const healthPath = "/readyz/apiservices"

// health answers [healthPath] as a check of the API server does: 500 while a server is away,
// and which, and why.
func (r *reporter) health(w http.ResponseWriter, _ *http.Request) {
	var text strings.Builder
	code := http.StatusOK
	for _, s := range r.servers() {
		since := s.Since.UTC().Format(time.RFC3339)
		switch {
		case s.Problem != "":
			code = http.StatusInternalServerError
			fmt.Fprintf(&text, "[-]%s failed since %s: %s\n", s.Name, since, s.Problem)
		case len(s.Missing) > 0:
			code = http.StatusInternalServerError
			fmt.Fprintf(&text, "[-]%s does not answer for %d of its group versions: %v\n", s.Name, len(s.Missing), s.Missing)
		default:
			fmt.Fprintf(&text, "[+]%s ok since %s\n", s.Name, since)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text.String())) // an error says that the client went away
}

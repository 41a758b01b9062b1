package security

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestSmuggling: what a proxy in front may understand otherwise is refused, or
// is the last request of its connection.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), smugglingAttempts())
}

// smugglingAttempts: each is a POST whose length is in doubt, followed by what
// would be another request with good credentials if its end were elsewhere.
func smugglingAttempts() map[string]attempt {
	hidden := func(n string) string {
		return "GET " + open + "?smuggled=" + n + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + tokenOf("reader") + "\r\nConnection: close\r\n\r\n"
	}
	all := map[string]attempt{}
	for name, c := range map[string]struct {
		headers []string
		body    string
		ending  string // of lines; CRLF when it is empty
	}{
		"length and chunks":               {headers: []string{"Content-Length: 5", "Transfer-Encoding: chunked"}, body: "0\r\n\r\n"},
		"chunks and length":               {headers: []string{"Transfer-Encoding: chunked", "Content-Length: 400"}, body: "0\r\n\r\n"},
		"two lengths":                     {headers: []string{"Content-Length: 0", "Content-Length: 400"}},
		"lengths in one header":           {headers: []string{"Content-Length: 0, 400"}},
		"two encodings":                   {headers: []string{"Transfer-Encoding: chunked", "Transfer-Encoding: identity"}, body: "0\r\n\r\n"},
		"encodings in one header":         {headers: []string{"Transfer-Encoding: gzip, chunked"}, body: "0\r\n\r\n"},
		"encoding nobody knows":           {headers: []string{"Transfer-Encoding: xchunked", "Content-Length: 0"}, body: "0\r\n\r\n"},
		"encoding with a tab":             {headers: []string{"Transfer-Encoding:\tchunked\v", "Content-Length: 0"}, body: "0\r\n\r\n"},
		"space before the colon":          {headers: []string{"Transfer-Encoding : chunked", "Content-Length: 0"}, body: "0\r\n\r\n"},
		"folded header":                   {headers: []string{"Transfer-Encoding:\r\n chunked", "Content-Length: 0"}, body: "0\r\n\r\n"},
		"bare line feeds":                 {headers: []string{"A: b\nTransfer-Encoding: chunked", "Content-Length: 0"}, body: "0\r\n\r\n"},
		"bare carriage return":            {headers: []string{"A: b\rTransfer-Encoding: chunked", "Content-Length: 0"}, body: "0\r\n\r\n"},
		"zero byte":                       {headers: []string{"Content-Length: 0", "A: b\x00c"}},
		"header without a name":           {headers: []string{": chunked", "Content-Length: 0"}},
		"header without a colon":          {headers: []string{"Transfer-Encoding chunked", "Content-Length: 0"}},
		"space before the first header":   {headers: []string{" Transfer-Encoding: chunked", "Content-Length: 0"}, body: "0\r\n\r\n"},
		"negative chunk":                  {headers: []string{"Transfer-Encoding: chunked"}, body: "-1\r\n"},
		"chunk that overflows":            {headers: []string{"Transfer-Encoding: chunked"}, body: "10000000000000000\r\n"},
		"chunk in hexadecimal with 0x":    {headers: []string{"Transfer-Encoding: chunked"}, body: "0x0\r\n\r\n"},
		"chunk ended by a line feed":      {headers: []string{"Transfer-Encoding: chunked"}, body: "1;a\nA\r\n0\r\n\r\n"},
		"chunk extension with line feeds": {headers: []string{"Transfer-Encoding: chunked"}, body: "0;a\n\r\n\r\n"},
		"chunk longer than it says":       {headers: []string{"Transfer-Encoding: chunked"}, body: "1\r\nAAAA\r\n0\r\n\r\n"},
		"trailer with a length":           {headers: []string{"Transfer-Encoding: chunked", "Trailer: Content-Length"}, body: "0\r\nContent-Length: 400\r\n\r\n"},
		"HTTP/1.0 with chunks":            {headers: []string{"Transfer-Encoding: chunked"}, body: "0\r\n\r\n", ending: "HTTP/1.0"},
		"HTTP/0.9":                        {ending: "HTTP/0.9"},
		"HTTP/2.0 in a line":              {headers: []string{"Content-Length: 0"}, ending: "HTTP/2.0"},
		"upgrade to plain HTTP/2":         {headers: []string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", "Content-Length: 0", "Connection: close"}},
		"two hosts":                       {headers: []string{"Host: b", "Content-Length: 0"}},
	} {
		all[name] = attempt{reason: "there is one answer, and nothing after it is a request", try: func(t *testing.T, w *world) {
			protocol := "HTTP/1.1"
			if c.ending != "" {
				protocol = c.ending
			}
			mark := strings.ReplaceAll(name, " ", "-")
			content := "POST " + tenant + "/configmaps " + protocol + "\r\n"
			for _, h := range append(c.headers, "Host: a", "Authorization: Bearer "+tokenOf("stranger")) {
				content += h + "\r\n"
			}
			answers := w.raw(t, content+"\r\n"+c.body+hidden(mark))
			if len(answers) > 1 {
				t.Errorf("%d answers: %+v", len(answers), answers)
			}
			for _, a := range answers {
				if a.code < 400 {
					t.Errorf("%d %s", a.code, a.body)
				}
			}
		}}
	}
	all["folded header nobody knows"] = attempt{reason: "a line that begins with a space is no header", try: func(t *testing.T, w *world) {
		content := "POST " + tenant + "/configmaps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + tokenOf("stranger") + "\r\nA: b\r\n Content-Length: 400\r\nContent-Length: 0\r\n\r\n"
		got := w.raw(t, content+hidden("no"))
		if len(got) != 2 || got[0].code != http.StatusForbidden || got[1].code != http.StatusOK {
			t.Errorf("%+v", got)
		}
	}}
	all["request behind a request"] = attempt{reason: "what is no attempt works: two requests have two answers", try: func(t *testing.T, w *world) {
		content := "GET " + open + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + tokenOf("stranger") + "\r\n\r\n" + hidden("no")
		got := w.raw(t, content)
		if len(got) != 2 || got[0].code != http.StatusForbidden || got[1].code != http.StatusOK {
			t.Errorf("%+v", got)
		}
	}}
	all["lines into the audit log"] = attempt{reason: "an event is one line, whatever is in the path", try: func(t *testing.T, w *world) {
		const event = `%0a{"kind":"Event","user":{"username":"forged"}}`
		w.send(t, request{as: "stranger", method: "POST", path: tenant + "/configmaps?a=" + event + "%0d%0a", header: map[string]string{"User-Agent": `a","b":"` + "\u2028c"}, body: "{}"})
		w.raw(t, line("stranger", "DELETE", tenant+"/configmaps/a%0a%7b%22user%22:%22forged%22%7d"))
		content, err := os.ReadFile(w.audit)
		if err != nil || len(content) == 0 {
			t.Fatalf("the log: %d bytes, %v", len(content), err)
		}
		for l := range strings.Lines(string(content)) {
			if !strings.HasSuffix(l, "\n") {
				break // it is being written
			}
			if !strings.HasPrefix(l, `{"kind":"Event","apiVersion":"audit.k8s.io/v1"`) || strings.Contains(l, `"username":"forged"`) || strings.Contains(l, treasure) || strings.Contains(l, "token-of-") {
				t.Error(fmt.Sprint("a line: ", short(l)))
			}
		}
	}}
	return all
}

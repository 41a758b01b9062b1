// Command behind is many API servers in one process, for servers that have others behind
// them. Each has one group version with one object, and answers from memory, so that what
// is measured is the server in front. It writes the port and the group of each as a line of
// JSON.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "behind:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	n := flag.Int("n", 1, "how many servers")
	cert := flag.String("cert", "", "file with the certificate of all")
	key := flag.String("key", "", "file with its key")
	flag.Parse()
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return err
	}
	// As other API servers they know who asks by its certificate.
	config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	ended := make(chan error, *n)
	out := json.NewEncoder(os.Stdout)
	for i := range *n {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		group := fmt.Sprintf("behind%d.example.com", i)
		s := &http.Server{
			Handler: handler(group), TLSConfig: config.Clone(), ReadHeaderTimeout: time.Minute,
			ErrorLog: log.New(io.Discard, "", 0), // checks that make a connection and no request
		}
		go func() { ended <- s.ServeTLS(listener, "", "") }()
		if err := out.Encode(map[string]any{"group": group, "port": listener.Addr().(*net.TCPAddr).Port}); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return errors.Join(errors.New("a server ended"), err)
	}
}

// document is what a path answers with.
type document struct{ contentType, body string }

// aggregated is the type of discovery that tells everything at once.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// handler is the server of a group.
func handler(group string) http.Handler {
	answers := map[string]document{}
	for path, d := range documents() {
		answers[strings.ReplaceAll(path, "GROUP", group)] = document{d.contentType, strings.ReplaceAll(d.body, "GROUP", group)}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if path == "/apis" && strings.Contains(r.Header.Get("Accept"), "v=v2;") {
			path = everything
		}
		d, ok := answers[path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", d.contentType)
		w.Header().Set("Cache-Control", "no-cache, private")
		if !strings.HasSuffix(path, "/a") { // objects have none
			w.Header().Set("Etag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(d.body))))
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(d.body))
	})
}

// everything is where discovery of everything is, of clients that read it.
const everything = "/apis of everything"

// documents are the answers of a server, by path.
func documents() map[string]document {
	const json = "application/json"
	return map[string]document{
		"/readyz": {"text/plain", "ok"},
		everything: {aggregated, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{
"metadata":{"name":"GROUP"},"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"things",
"responseKind":{"group":"GROUP","version":"v1","kind":"Thing"},"scope":"Namespaced","singularResource":"thing",
"verbs":["get"]}]}]}]}`},
		"/apis": {json, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"GROUP",
"versions":[{"groupVersion":"GROUP/v1","version":"v1"}],"preferredVersion":{"groupVersion":"GROUP/v1","version":"v1"}}]}`},
		"/apis/GROUP/v1": {json, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"GROUP/v1","resources":[{"name":"things",
"singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get"]}]}`},
		"/openapi/v2":               {json, `{"swagger":"2.0","info":{"title":"GROUP","version":"v1"},"paths":{}}`},
		"/openapi/v3":               {json, `{"paths":{"apis/GROUP/v1":{"serverRelativeURL":"/openapi/v3/apis/GROUP/v1?hash=1"}}}`},
		"/openapi/v3/apis/GROUP/v1": {json, `{"openapi":"3.0.0","info":{"title":"GROUP","version":"v1"},"paths":{}}`},
		"/apis/GROUP/v1/namespaces/default/things/a": {json, `{"kind":"Thing","apiVersion":"GROUP/v1",
"metadata":{"name":"a","namespace":"default","uid":"5a9c2f0e-0d3c-4b1e-9b6c-7f1f1c9b8a11","resourceVersion":"1"},
"value":"` + strings.Repeat("x", 1024) + `"}`},
	}
}

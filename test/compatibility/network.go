package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// network starts a proxy by which programs find Services, as a cluster's DNS has them find
// them, and sets a variable to its URL, for HTTPS_PROXY.
func network(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: network VARIABLE HOST:PORT=ADDRESS...")
	}
	addresses := proxy{}
	for _, arg := range args[1:] {
		host, address, ok := strings.Cut(arg, "=")
		if !ok {
			ts.Fatalf("network: %q has no address", arg)
		}
		addresses[host] = address
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	server := &http.Server{Handler: addresses, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until it is closed
	ts.Defer(func() { _ = server.Close() })
	ts.Setenv(args[0], "http://"+l.Addr().String())
}

// proxy has the addresses of hosts.
type proxy map[string]string

// ServeHTTP connects a client with an address. The tunnel ends with either side.
func (p proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, ok := p[r.Host]
	if !ok || r.Method != http.MethodConnect {
		http.Error(w, "nobody knows "+r.Host, http.StatusNotFound)
		return
	}
	server, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = server.Close() }()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }()
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var both sync.WaitGroup
	carry := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)                        // until either side has gone
		_ = errors.Join(client.Close(), server.Close()) // ends the other direction
	}
	both.Go(func() { carry(server, buffered) })
	both.Go(func() { carry(client, server) })
	both.Wait()
}

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/rogpeppe/go-internal/testscript"
)

// get is this program when it is called get: it prints what is at a URL, and fails unless the status is 200.
func get() {
	if err := printURL(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "get:", err)
		os.Exit(1)
	}
}

func printURL(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: get URL")
	}
	resp, err := http.Get(args[0])
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", args[0], resp.Status)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}

func files(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: files DIR NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	server := &http.Server{Handler: http.FileServer(http.Dir(ts.MkAbs(args[0])))}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // until it is closed
	}()
	ts.Defer(func() {
		_ = server.Close() // closes the listener too
		<-ended
	})
	ts.Setenv(args[1], "http://"+l.Addr().String())
}

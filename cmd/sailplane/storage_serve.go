package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/pkg/storage/serving"
)

// lending is the command that serves a storage to API servers of others.
type lending struct {
	stored   place
	server   serving.Server
	settings settings
}

func serveStorageCommand() *cobra.Command {
	l := &lending{stored: place{flag: "storage", memory: true}}
	c := &cobra.Command{
		Use:   "serve --storage STORAGE --cert-dir DIR",
		Short: "Serve a storage as an etcd server, for API servers of others",
		Long: `Serve a storage as an etcd v3 server, for API servers of others: a kube-apiserver on
PostgreSQL, for example, in place of kine.

  sailplane storage serve --storage postgres://kube@db.example.com/kube --cert-dir etcd
  kube-apiserver --etcd-servers https://127.0.0.1:2379 --etcd-cafile etcd/ca.crt \
    --etcd-certfile etcd/admin.crt --etcd-keyfile etcd/admin.key ...

Whoever reaches it can read and write everything, so that clients need a certificate of
its authority. On a socket of this machine (--listen unix:///run/etcd.sock) they need to
be its owner instead. Several may serve one database or etcd cluster. URLs of kine are
taken, too: sqlite:///var/lib/kine/state.db, mysql://user@tcp(host:3306)/db.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.SortFlags = false
	l.stored.flags(c, "storage to serve")
	f.StringVar(&l.server.Listen, "listen", serving.DefaultListen, "address and port (0: a free one), or unix:///PATH")
	f.StringVar(&l.server.CertDir, "cert-dir", "",
		"folder that keeps ca.crt, the server's certificate, and one for clients (admin.crt, admin.key); made if missing")
	f.StringArrayVar(&l.server.Hosts, "host", nil, "name or address by which clients reach it, for its certificate; may be repeated")
	f.StringVar(&l.server.CertFile, "tls-cert-file", "", "the server's certificate (PEM), in place of --cert-dir")
	f.StringVar(&l.server.KeyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	f.StringVar(&l.server.ClientCAFile, "client-ca-file", "", "authorities of clients (PEM), in place of --cert-dir")
	l.settings.only(c, "v", "log-format")
	_ = c.MarkFlagDirname("cert-dir")
	for _, name := range []string{"tls-cert-file", "tls-private-key-file", "client-ca-file"} {
		_ = c.MarkFlagFilename(name)
	}
	return c
}

// kineURL returns the URL of a storage for one of kine's: whoever comes from there need
// not write it anew. What SQLite's driver is told in it has no use here.
func kineURL(url string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	switch scheme {
	case "sqlite":
		path, _, _ := strings.Cut(rest, "?")
		return "sqlite:" + path
	case "http", "https":
		return "etcd+" + url
	case "mysql":
		login, address, ok := strings.Cut(url, "@tcp(")
		if host, database, closed := strings.Cut(address, ")"); ok && closed {
			return login + "@" + host + database
		}
	}
	return url
}

func (l *lending) run(ctx context.Context, out, log io.Writer) error {
	_, c, err := l.settings.document()
	if err != nil {
		return err
	}
	l.stored.url = kineURL(l.stored.url)
	s, _, err := l.stored.open()
	if err != nil {
		return err
	}
	ctx = logging(ctx, log, c.Log)
	l.server.Storage = s
	l.server.Ready = func(url string) {
		fmt.Fprintf(out, "sailplane: %s is served at %s\n", s.Traits().Engine, url)
		_ = notify(daemon.SdNotifyReady) // it serves whether that is known or not
	}
	return l.server.Run(ctx)
}

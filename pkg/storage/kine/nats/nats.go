// Package nats keeps a server's objects in a key-value bucket of a NATS server with
// JetStream, with kine's driver. docs/storage/kine.md says what does not hold there. The
// program contains no NATS server: kine's driver imports its package, but the linker
// drops it.
package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/k3s-io/kine/pkg/drivers"
	driver "github.com/k3s-io/kine/pkg/drivers/nats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine"
)

// JetStream is a bucket of a NATS server that runs somewhere else. The URL is
// nats://user@host:4222?bucket=name&sync=always of one server, which tells the client of
// the others in its cluster. Its query says with sync what the server's sync_interval is,
// which a client cannot ask for: "always", or "interval" for another value, with which a loss
// of power loses what was acknowledged since the last sync (two minutes unless the server has
// another value). The query has kine's settings too: bucket ("kine" unless given), replicas,
// revHistory, slowMethod and credsFile, a file with a user's JWT and key. A user without a
// password is a token.
type JetStream kine.Remote

// The values of sync in the query.
const (
	syncs    = "sync"
	always   = "always"
	interval = "interval"
)

var _ controlplane.Storage = JetStream{}

// String leaves the credentials out.
func (j JetStream) String() string { return kine.Remote(j).Name("nats") }

// Traits implements controlplane.Storage. What the URL says of syncs is believed.
func (j JetStream) Traits() controlplane.Traits {
	u, err := url.Parse(j.URL)
	return controlplane.Traits{Engine: "nats", Shared: true, Durable: err == nil && u.Query().Get(syncs) == always}
}

// Open implements controlplane.Storage.
func (j JetStream) Open() controlplane.Backend {
	return kine.Open(kine.Driver{
		Name: j.String(), Remote: kine.Remote(j), Schemes: []string{"nats"},
		Limits: "several clients that delete a key at the same time may all succeed, " +
			"an event may come after the progress notification of its revision, " +
			"a power failure may lose acknowledged writes, and the driver may end the process when it loses the server " +
			"right after the start; see docs/storage/kine.md",
		New:    driver.NewLegacy, // the only one that never starts a server of its own
		Config: configure, Check: check,
	})
}

// configure describes the bucket in kine's form.
func configure(u *url.URL, config *drivers.Config) error {
	password, _ := u.User.Password()
	query := u.Query()
	sync := query.Get(syncs)
	switch {
	case sync != always && sync != interval:
		return fmt.Errorf("a NATS server acknowledges writes that are not on its disk, and a loss of power loses them, unless its "+
			"sync_interval is always: add %s=%s to the query of the URL where it is, or %s=%s to accept that",
			syncs, always, syncs, interval)
	case strings.Contains(u.Host, ","):
		return errors.New("the URL has several servers; name only one: the client learns about the others")
	case u.Query().Has("contextFile"):
		return errors.New("contextFile is not supported; use credsFile, or user and password")
	case (password != "" || u.User.Username() != "") && strings.ContainsAny(u.User.String(), "%,"):
		// kine splits the URL at commas, and does not decode the password it finds.
		return errors.New("user and password may only have letters, digits and -._~$&+=; and others need credsFile")
	}
	query.Del(syncs)
	u.RawQuery = query.Encode()
	config.DataSourceName = u.String()
	return nil
}

// check connects once, and asks for JetStream.
func check(ctx context.Context, config drivers.Config) error {
	conn, err := connect(config)
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		return fmt.Errorf("%w: %w; check the user and the password", kine.ErrRefused, err)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	_, err = stream.AccountInfo(ctx)
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("%w: %w; start the server with JetStream", kine.ErrRefused, err)
	}
	return err
}

// connect connects to a server with the description, as kine does.
func connect(config drivers.Config) (*nats.Conn, error) {
	u, err := url.Parse(config.DataSourceName)
	if err != nil {
		return nil, err
	}
	var options []nats.Option
	if password, found := u.User.Password(); found {
		options = append(options, nats.UserInfo(u.User.Username(), password))
	} else if u.User != nil {
		options = append(options, nats.Token(u.User.Username()))
	}
	if file := u.Query().Get("credsFile"); file != "" {
		options = append(options, nats.UserCredentials(file))
	}
	if security := config.BackendTLSConfig; security.CertFile != "" {
		options = append(options, nats.ClientCert(security.CertFile, security.KeyFile))
	}
	if file := config.BackendTLSConfig.CAFile; file != "" {
		options = append(options, nats.RootCAs(file))
	}
	return nats.Connect("nats://"+u.Host, options...)
}

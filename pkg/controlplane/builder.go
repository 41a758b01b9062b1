package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"slices"
	"strings"
	"time"
)

// defaultHistory is how long a storage keeps history, as kube-apiserver has it
// (--etcd-compaction-interval).
const defaultHistory = 5 * time.Minute

// Builder collects what a server is made of. Its methods may be called in any
// order until Build.
type Builder struct {
	name    string
	listen  string
	prefix  string
	storage Storage
	parts   []Part
	history time.Duration
	drain   time.Duration
	limits  Limits
	log     *slog.Logger
}

// New returns the Builder of a server with the given name, which appears in logs
// and in the user agent of the server's own clients.
func New(name string) *Builder {
	return &Builder{name: name, prefix: "/registry", history: defaultHistory, drain: defaultDrain}
}

// Listen has the server serve HTTPS at a TCP address, "127.0.0.1:6443"; port 0
// picks a free one. Without it the server is reached through Handler and
// ClientConfig only.
func (b *Builder) Listen(address string) *Builder {
	b.listen = address
	return b
}

// Storage says where the server keeps its objects. Required.
func (b *Builder) Storage(s Storage) *Builder {
	b.storage = s
	return b
}

// Prefix sets what every key in the storage starts with, "/registry" by default
// as in Kubernetes. Servers that share an etcd cluster need different ones.
func (b *Builder) Prefix(prefix string) *Builder {
	b.prefix = prefix
	return b
}

// History sets how long, at least, the storage keeps old versions of objects, for
// watches and lists that ask for them: 5 minutes by default, as kube-apiserver's
// --etcd-compaction-interval. A storage may have a limit of its own, by size.
func (b *Builder) History(keep time.Duration) *Builder {
	b.history = keep
	return b
}

// Drain sets how long requests that run may take after the context of Run has ended,
// 60 seconds by default, the longest that a request may take which is no watch. Those
// that are still running then are cut off, and Run returns an error that says so. It
// holds for every plane of the server.
func (b *Builder) Drain(limit time.Duration) *Builder {
	b.drain = limit
	return b
}

// Limits bound what one request or one client may cost. Without them the server has
// the defaults.
func (b *Builder) Limits(l Limits) *Builder {
	b.limits = l
	return b
}

// Log sets where the server logs to: one line at level Info when it is ready, with its
// name, its address if it listens, and the milliseconds since Run was called; and
// problems, as Warn and Error. A logger that takes lower levels also gets what the
// libraries below log, V(n) at level -n. Nil, the default: the logger of the context
// that Run is called with ([logr.NewContext]), or else slog.Default().
//
// Some code of the libraries knows only klog's global logger. See [LibraryLog].
func (b *Builder) Log(logger *slog.Logger) *Builder {
	b.log = logger
	return b
}

// With adds parts, in order.
func (b *Builder) With(parts ...Part) *Builder {
	b.parts = append(b.parts, parts...)
	return b
}

// Build returns the server, or everything that is wrong at once. It reads the
// files that parts check ([Plan.Read]), and starts nothing.
func (b *Builder) Build() (*Server, error) {
	plan := newServerPlan()
	errs := []error{plan.install(b.parts), plan.check(b.storage)}
	if b.name == "" {
		errs = append(errs, errors.New(`the server has no name: pass one to New, such as "apples"`))
	}
	if b.storage == nil {
		errs = append(errs, errors.New("no storage: call Storage with one, such as memory.Store{}"))
	}
	if !strings.HasPrefix(b.prefix, "/") || path.Clean(b.prefix) != b.prefix || b.prefix == "/" {
		errs = append(errs, fmt.Errorf(`prefix %q: want a path such as "/registry"`, b.prefix))
	}
	if b.history <= 0 {
		errs = append(errs, fmt.Errorf("history %v: want a duration above 0, such as %v", b.history, defaultHistory))
	}
	if b.drain <= 0 {
		errs = append(errs, fmt.Errorf("drain %v: want a duration above 0, such as %v", b.drain, defaultDrain))
	}
	errs = append(errs, b.limits.check()...)
	if b.listen != "" {
		if _, _, err := net.SplitHostPort(b.listen); err != nil {
			errs = append(errs, fmt.Errorf("listen: %w: want HOST:PORT, such as 127.0.0.1:6443", err))
		}
		if len(plan.identity) == 0 && len(plan.certificates) == 0 {
			errs = append(errs, errors.New(
				"listen: no part provides a serving certificate: add authn.Admin{} or authn.ServingCertificate{}"))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	clone := *b
	clone.limits = b.limits.withDefaults()
	clone.limits.Addresses.Trusted = slices.Clone(clone.limits.Addresses.Trusted)
	clone.parts = slices.Clone(b.parts)
	return newServer(clone), nil
}

// Run builds the server and runs it until the context ends.
func (b *Builder) Run(ctx context.Context) error {
	s, err := b.Build()
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

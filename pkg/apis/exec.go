package apis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sailplane-dev/sailplane/pkg/internal/query"
	"github.com/sailplane-dev/sailplane/pkg/internal/stream"
)

// Streams are what the client of an [Exec] or [Attach] reads and writes. None is nil: what
// the client did not ask for is empty, or discards what is written.
type Streams struct {
	// Stdin is what the client sends, to its end.
	Stdin io.Reader
	// Stdout and Stderr are what the client prints. With a terminal they are the same.
	Stdout, Stderr io.Writer
	// TTY says that the client is a terminal, in raw mode.
	TTY bool
	// Resize has the size of the terminal whenever it changed, the first one at the
	// beginning, and is closed in the end. It is nil without TTY. Reading it is optional.
	Resize <-chan TerminalSize
}

// TerminalSize is that of a terminal: Width and Height, in characters.
type TerminalSize = stream.Size

// Exec adds a sub-resource, "exec" or "console", that gives a client a terminal, or the three
// streams of a command, as pods/exec does: over SPDY and WebSockets, for kubectl exec and cp
// where the resource is pods, and for k8s.io/client-go/tools/remotecommand anywhere. It takes
// the verb create; over a WebSocket, which begins with a GET, it takes get too.
//
// The options are the query, a struct as for [Stream]: corev1.PodExecOptions, or one's own.
// What a client wants it says with the parameters stdin, stdout, stderr and tty, of which the
// options may have fields.
//
// When run returns, the client ends. An error with a method ExitStatus or ExitCode, such as
// *os/exec.ExitError, is the exit code of the client; others are told to it, and so is
// a panic. The context ends when the client is gone, may no longer do this, or the plane
// stops; that a client is gone is noticed once at most 64 KiB of its input are left unread.
// A connection on which nothing comes or goes for four hours ends. A user may have 256 such
// streams open.
func Exec[T, O any, PO interface {
	*O
	runtime.Object
}](name string, run func(ctx context.Context, obj *T, options PO, streams Streams) error) Option {
	return console("Exec", name, false, run)
}

// Attach is [Exec] for what runs already: kubectl attach uses it, with corev1.PodAttachOptions.
// It has no exit code.
func Attach[T, O any, PO interface {
	*O
	runtime.Object
}](name string, run func(ctx context.Context, obj *T, options PO, streams Streams) error) Option {
	return console("Attach", name, true, run)
}

func console[T, O any, PO interface {
	*O
	runtime.Object
}](option, name string, attach bool, run func(context.Context, *T, PO, Streams) error) Option {
	return typed[T](option, func(d *Definition) {
		wants, err := query.Decoder(reflect.TypeFor[stream.Wants]())
		if err != nil {
			d.optionErrs = append(d.optionErrs, err)
			return
		}
		d.addConnection(name, connection{
			methods: upgrading(), create: true, options: func() runtime.Object { return PO(new(O)) },
			handler: func(_ context.Context, obj, options runtime.Object, answer rest.Responder) (http.Handler, error) {
				return upgraded(answer, func(w http.ResponseWriter, r *http.Request) error {
					c := &stream.Console{Attach: attach, Run: func(ctx context.Context, t stream.Terminal) error {
						return run(ctx, hubType[T](obj), any(options).(PO), Streams(t))
					}}
					if err := wants(r.URL.Query(), &c.Wants); err != nil {
						return err
					}
					if w := c.Wants; !w.Stdin && !w.Stdout && (!w.Stderr || w.TTY) {
						return errors.New("no stream is wanted: set stdin, stdout or, without tty, stderr in the query")
					}
					c.ServeHTTP(w, r)
					return nil
				}), nil
			},
		})
	})
}

// PortForward adds a sub-resource, "portforward", that forwards connections to a function,
// each as a conn that the function reads and writes, and with the port that the client
// asked for: kubectl port-forward uses that of pods, and
// k8s.io/client-go/tools/portforward any. Verbs, context and bounds are those of [Exec]; one
// request may forward 128 connections at a time. An error is told to the client.
func PortForward[T any](name string, forward func(ctx context.Context, obj *T, port uint16, conn io.ReadWriteCloser) error) Option {
	return typed[T]("PortForward", func(d *Definition) {
		d.addConnection(name, connection{
			methods: upgrading(), create: true, options: func() runtime.Object { return &corev1.PodPortForwardOptions{} },
			handler: func(_ context.Context, obj, options runtime.Object, answer rest.Responder) (http.Handler, error) {
				ports := options.(*corev1.PodPortForwardOptions).Ports
				if len(ports) > stream.MostForwards {
					return nil, apierrors.NewBadRequest(
						fmt.Sprintf("%d ports are more than %d: ask for fewer", len(ports), stream.MostForwards))
				}
				for _, port := range ports {
					if port < 1 || port > 1<<16-1 {
						return nil, apierrors.NewBadRequest(fmt.Sprintf("port %d: want 1 to 65535", port))
					}
				}
				o := obj.(Object)
				h := &stream.Ports{
					Name: o.GetName(), UID: string(o.GetUID()), Wanted: ports,
					Forward: func(ctx context.Context, port uint16, conn io.ReadWriteCloser) error {
						return forward(ctx, hubType[T](obj), port, conn)
					},
				}
				return upgraded(answer, func(w http.ResponseWriter, r *http.Request) error {
					h.ServeHTTP(w, r)
					return nil
				}), nil
			},
		})
	})
}

// upgrading are the methods of requests that upgrade: a WebSocket begins with a GET.
func upgrading() []string { return []string{http.MethodGet, http.MethodPost} }

// upgraded refuses requests that do not upgrade, with the error of a bad request, and others
// for which serve returns an error.
func upgraded(answer rest.Responder, serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpstream.IsUpgradeRequest(r) {
			answer.Error(apierrors.NewBadRequest("an upgrade is required: ask for SPDY/3.1 or a WebSocket"))
			return
		}
		if err := serve(w, r); err != nil {
			answer.Error(apierrors.NewBadRequest(err.Error()))
		}
	})
}

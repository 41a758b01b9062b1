package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/heap"
	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/threads"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// settings are what the flags, the environment and the file say, for a command.
type settings struct {
	file  string
	given *config.Given
}

// configVariable names the file in the environment.
const configVariable = "SAILPLANE_CONFIG"

// flags adds the flags to a command.
func (s *settings) flags(c *cobra.Command) {
	s.register(c, config.Flags())
	for name, words := range map[string][]string{
		"webhook-deny": {"private"}, "webhook-allow": {"private"}, "resources": {"all", "standard"}, "log-format": {"text", "json"},
		"authorization-mode": {server.ModeRBAC, server.ModeWebhook, server.ModeAlwaysAllow, server.ModeAlwaysDeny},
		"storage": {
			"memory", "sqlite:", "etcd:", "etcd+http://", "etcd+https://",
			"postgres://", "mysql://", "nats://", "t4://",
		},
	} {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoSpace))
	}
}

// only adds those of the flags that a command needs.
func (s *settings) only(c *cobra.Command, names ...string) {
	s.register(c, slices.DeleteFunc(config.Flags(), func(f config.Flag) bool { return !slices.Contains(names, f.Name) }))
}

func (s *settings) register(c *cobra.Command, flags []config.Flag) {
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&s.file, "config", "", "configuration file; flags and the environment win over it (default none)")
	s.given = config.Register(f, flags, config.New())
	_ = c.MarkFlagFilename("config", "yaml", "yml", "json")
	for _, name := range []string{"data-dir", "crds"} {
		_ = c.MarkFlagDirname(name) // which fails where there is no such flag
	}
}

// document joins the defaults, the file, the environment and the flags, and decodes
// them. It returns everything that is wrong.
func (s *settings) document() (*config.Document, *config.Server, error) {
	d := config.New()
	if s.file == "" {
		s.file = os.Getenv(configVariable)
	}
	var errs []error
	if s.file != "" {
		errs = append(errs, d.File(s.file))
	}
	errs = append(errs, s.given.Apply(d))
	c, err := d.Server()
	return d, c, misused(errors.Join(append(errs, err)...))
}

// builder returns the configuration, and the builder of its server.
func (s *settings) builder() (*config.Server, *server.Live, *controlplane.Builder, error) {
	d, c, err := s.document()
	if err != nil {
		return nil, nil, nil, err
	}
	live := server.NewLive(c, s.file != "")
	b, _, err := server.Builder("sailplane", live, d.At)
	return c, live, b, misused(err)
}

func serveCommand() *cobra.Command {
	s := &settings{}
	check := false
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the Kubernetes API until interrupted",
		Long: `Serve the Kubernetes API until interrupted.

The keys, the certificates and, by default, the objects are kept in the data
directory. When the server is ready it writes a kubeconfig and prints one line.

Every flag is also a variable of the environment, SAILPLANE_LISTEN for --listen, and
a field of the file that --config names: "sailplane config" prints it, with all
defaults. A flag wins over the environment, which wins over the file.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				return s.check(cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return s.serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.Flags().BoolVar(&check, "check", false, "say everything that is wrong with the configuration, and serve nothing")
	s.flags(c)
	return c
}

// check says what is wrong with the configuration.
func (s *settings) check(out, log io.Writer) error {
	c, _, b, err := s.builder()
	if err != nil {
		return err
	}
	logging(context.Background(), log, c.Log)
	if _, err := b.Build(); err != nil {
		return misused(err)
	}
	_, err = fmt.Fprintln(out, "the configuration is right")
	return err
}

func (s *settings) serve(ctx context.Context, out, log io.Writer) error {
	begun := time.Now()
	c, live, b, err := s.builder()
	if err != nil {
		return err
	}
	ctx = logging(ctx, log, c.Log)
	running, err := b.With(controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
		more, end := threads.Tune()
		memory := &heap.Tuner{}
		p.LargeRequests(func(some bool) {
			more(some)
			memory.Large(some)
		})
		p.Work(controlplane.Work{Name: "ready line", Start: func(ctx context.Context, plane *controlplane.Plane) error {
			context.AfterFunc(ctx, memory.Tune())
			context.AfterFunc(ctx, end)
			if c.Log.Format == config.JSON { // the log has the line
				return notify(daemon.SdNotifyReady)
			}
			_, err := fmt.Fprintf(out, "sailplane: ready at https://%s in %d ms, kubeconfig %s\n",
				reachable(plane.Server().Address()), time.Since(begun).Milliseconds(), server.Kubeconfig(c))
			return errors.Join(err, notify(daemon.SdNotifyReady))
		}})
		p.Work(controlplane.Work{Name: "configuration", Run: func(ctx context.Context, _ *controlplane.Plane) error {
			return s.follow(ctx, live, out)
		}})
		return nil
	})).Build()
	if err != nil {
		return misused(err)
	}
	stopping := context.AfterFunc(ctx, func() { _ = notify(daemon.SdNotifyStopping) }) // it stops whether that is known or not
	defer stopping()
	return running.Run(ctx)
}

// notify tells systemd, where it started the process as a unit of Type=notify.
func notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("tell systemd (NOTIFY_SOCKET) %s: %w", state, err)
	}
	return nil
}

// reachable returns the address that a client on this machine connects to: it
// cannot connect to an unspecified one, such as 0.0.0.0.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
}

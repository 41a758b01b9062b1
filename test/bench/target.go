package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// target is something that can be started and then serves the Kubernetes API.
type target interface {
	// name is the title of its column.
	name() string
	// start starts a server on the data in a directory, and returns when it is
	// ready. The phase names its profile, if profiles are written.
	start(ctx context.Context, dir, phase string) (*server, error)
}

// server is a target that runs.
type server struct {
	config     *rest.Config // of an administrator
	kubeconfig string
	processes  []*process // the one that serves is first
	profiler   *profiler  // nil: writes no profiles
	// scraper reads metrics. It is one: each connection has goroutines in the server.
	scraper *kubernetes.Clientset

	// What the start took.
	startWall, startCPU time.Duration
}

// stop stops the server's processes, the one that serves first.
func (s *server) stop() error {
	var errs []error
	for _, p := range s.processes {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// client is the configuration of a client with a connection of its own, that
// never holds back.
func (s *server) client(contentType string) *rest.Config {
	c := rest.CopyConfig(s.config)
	c.QPS = -1
	c.ContentType = contentType
	// Configurations with a Dial of their own share no connection.
	c.Dial = (&net.Dialer{}).DialContext
	return c
}

func (s *server) clientset(contentType string) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(s.client(contentType))
}

// clientsets are those of many programs, each with its own connection.
func (s *server) clientsets(n int, contentType string) ([]*kubernetes.Clientset, error) {
	all := make([]*kubernetes.Clientset, n)
	for i := range all {
		var err error
		if all[i], err = s.clientset(contentType); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *server) dynamics(n int) ([]*dynamic.DynamicClient, error) {
	all := make([]*dynamic.DynamicClient, n)
	for i := range all {
		var err error
		if all[i], err = dynamic.NewForConfig(s.client("")); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// pollEvery is how exactly the moment of being ready is seen. Asking more often
// would take CPU from the server.
const pollEvery = time.Millisecond

// await returns when the server answers /readyz with 200. The configuration is
// asked for until there is one: the server writes it.
func (s *server) await(ctx context.Context, config func() (*rest.Config, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var client *http.Client
	for why := error(nil); ; {
		for _, p := range s.processes {
			if err := p.ended(); err != nil {
				return err
			}
		}
		if client == nil {
			if s.config, why = config(); why == nil {
				if client, why = rest.HTTPClientFor(s.client("")); why != nil {
					return why
				}
			}
		}
		if client != nil {
			if why = ready(ctx, client, s.config.Host); why == nil {
				break
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", errors.Join(ctx.Err(), why))
		case <-time.After(pollEvery):
		}
	}
	s.startWall = time.Since(s.processes[0].begun)
	var err error
	s.startCPU, err = s.cpu()
	return err
}

func ready(ctx context.Context, client *http.Client, host string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", resp.Status)
	}
	return nil
}

// awaitPort returns when a program listens at its port.
func awaitPort(ctx context.Context, p *process, port int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return conn.Close()
		}
		if ended := p.ended(); ended != nil {
			return ended
		}
		if pause(ctx, pollEvery) != nil {
			return fmt.Errorf("%s does not listen: %w", p.cmd.Path, err)
		}
	}
}

// freePort is a port that nobody listens at right now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

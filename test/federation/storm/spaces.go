package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

const (
	// living is how many namespaces there are at a time, and renewed how often there is another one.
	living  = 5
	renewed = 2 * time.Second

	namespaces = "/api/v1/namespaces"
)

// space is a namespace.
type space struct {
	name string

	mu    sync.Mutex
	ended bool // it is deleted, or about to be
}

func (s *space) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func (s *space) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// spaces makes and deletes namespaces.
type spaces struct {
	plane  *plane
	client *client

	mu      sync.Mutex
	alive   []*space
	deleted int
}

func newSpaces(p *plane, c *client) *spaces { return &spaces{plane: p, client: c} }

// some is one that is not deleted, if there is any.
func (s *spaces) some() *space {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.alive) == 0 {
		return nil
	}
	return s.alive[rand.IntN(len(s.alive))]
}

// work makes namespaces, and deletes them in the order in which they were made.
func (s *spaces) work(working, ctx context.Context) {
	for n := 0; ; n++ {
		one := &space{name: fmt.Sprint("space-", n)}
		if a := s.client.do(ctx, own, http.MethodPost, namespaces, namespace(one.name)); a.status == http.StatusCreated {
			if s.everywhere(working, one.name) != nil {
				s.remove(ctx, one)
				return
			}
			s.add(one)
		} else if ctx.Err() == nil {
			s.client.record.wrong("namespace %s is made: %v", one.name, a)
		}
		if behind.Pause(working, rand.N(2*renewed)) != nil {
			return
		}
		if oldest := s.oldest(); oldest != nil {
			s.remove(ctx, oldest)
		}
	}
}

func namespace(name string) document { return document{"metadata": document{"name": name}} }

// everywhere makes a namespace in the servers of Sailplane behind, too: these have some of their
// own, and take objects in no other ones. It waits for a server that is hurt.
func (s *spaces) everywhere(ctx context.Context, name string) error {
	for _, server := range s.plane.servers {
		if server.Name == "sample" { // which asks the front
			continue
		}
		err := behind.Until(ctx, hang, func(ctx context.Context) error { return makeIn(ctx, server, name) })
		if err != nil {
			if ctx.Err() == nil {
				s.client.record.wrong("namespace %s in %s: %v", name, server.Name, err)
			}
			return err
		}
	}
	return nil
}

func makeIn(ctx context.Context, server *behind.Server, name string) error {
	c, err := newClient(filepath.Join(server.Dir, "admin.kubeconfig"), nil) // with the port of its last start
	if err != nil {
		return err
	}
	defer c.http.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, _, err := c.send(ctx, http.MethodPost, namespaces, namespace(name))
	if err == nil && status != http.StatusCreated && status != http.StatusConflict {
		err = fmt.Errorf("%s answers %d", server.Name, status)
	}
	return err
}

func (s *spaces) add(one *space) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = append(s.alive, one)
}

// oldest is the next to be deleted, when there are enough.
func (s *spaces) oldest() *space {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.alive) <= living {
		return nil
	}
	one := s.alive[0]
	s.alive = s.alive[1:]
	return one
}

func (s *spaces) remove(ctx context.Context, one *space) {
	one.end()
	s.mu.Lock()
	s.deleted++
	s.mu.Unlock()
	a := s.client.do(ctx, own, http.MethodDelete, namespaces+"/"+one.name, nil)
	if ctx.Err() == nil && a.status != http.StatusOK && a.status != http.StatusAccepted {
		s.client.record.wrong("namespace %s is deleted: %v", one.name, a)
	}
}

// names are those of the namespaces that are not deleted, and how many are.
func (s *spaces) names() (alive map[string]bool, deleted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	alive = map[string]bool{}
	for _, each := range s.alive {
		alive[each.name] = true
	}
	return alive, s.deleted
}

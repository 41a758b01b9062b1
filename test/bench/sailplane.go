package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// sailplane is the binary on one storage, every part on.
type sailplane struct {
	lab     *lab
	storage string
}

func (t *sailplane) name() string { return t.storage }

func (t *sailplane) start(ctx context.Context, dir, phase string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &server{kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	// That of the last start names another port.
	if err := os.Remove(s.kubeconfig); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	args := []string{
		fmt.Sprintf("--listen=127.0.0.1:%d", port), "--data-dir=" + dir,
		"--storage=" + map[string]string{
			"memory": "memory",
			"sqlite": "sqlite:" + filepath.Join(dir, "state.db"),
			"etcd":   "etcd:" + filepath.Join(dir, "etcd"),
		}[t.storage],
	}
	var p *process
	if t.lab.linked {
		s.profiler = &profiler{dir: t.lab.cpuprofile, storage: t.storage}
		p, err = s.profiler.begin(exec.Command(t.lab.program("profiled"), args...), phase)
	} else {
		p, err = begin(exec.Command(t.lab.program("sailplane"), append([]string{"serve"}, args...)...))
	}
	if err != nil {
		return nil, err
	}
	s.processes = []*process{p}
	err = s.await(ctx, func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", s.kubeconfig) })
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

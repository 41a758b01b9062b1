// Command profiled is "sailplane serve" that writes profiles of itself: for
// finding out where time goes, not for measuring how much of it.
//
// It reads commands from standard input, one a line, and answers each with "ok"
// or an error: "cpu FILE" starts a CPU profile, "stop" ends it, "heap FILE"
// writes what lives.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storageapi"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "profiled:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve HTTPS at")
	storage := flag.String("storage", "memory", "memory, sqlite:PATH or etcd:DIR")
	dir := flag.String("data-dir", "data", "directory for keys, certificates and the kubeconfig")
	config := flag.String("config", "", "any file: lend storage to other API servers, without limits")
	var files etcdFiles
	flag.StringVar(&files.ca, "storage-ca", "", "CA file to verify an etcd with")
	flag.StringVar(&files.cert, "storage-cert", "", "client certificate file for an etcd")
	flag.StringVar(&files.key, "storage-key", "", "client key file for an etcd")
	profile := flag.String("cpuprofile", "", "file for a CPU profile from the start until the server is ready")
	flag.Parse()
	runtime.MemProfileRate = 128 << 10 // an idle server is small, and exact costs CPU time
	p := &profiles{}
	if *profile != "" {
		// The default of 100 a second sees little of a start. StartCPUProfile
		// complains that the rate is set and keeps it.
		runtime.SetCPUProfileRate(1000)
		if err := p.cpu(*profile); err != nil {
			return err
		}
	}
	datastore, err := open(*storage, files)
	if err != nil {
		return err
	}
	var lends controlplane.Parts
	if *config != "" {
		lends = controlplane.Parts{storageapi.EtcdStorages{Max: storageapi.Limits{WritesPerSecond: 1_000_000}}}
	}
	server, err := controlplane.New("profiled").
		Listen(*listen).
		Storage(datastore).
		With( // as cmd/sailplane has them
			authn.Admin{Dir: filepath.Join(*dir, "pki"), Kubeconfig: filepath.Join(*dir, "admin.kubeconfig")},
			authz.RBAC{},
			serviceaccount.Tokens{Dir: filepath.Join(*dir, "pki")},
			preset.Standard(),
			crd.Definitions{},
			aggregator.APIServices{},
			fairness.PriorityAndFairness{}, kube.FlowControl(), backup.Endpoint{}, lends,
		).
		Build()
	if err != nil {
		return err
	}
	go func() {
		<-server.Ready()
		err := p.stop()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			answer := "ok"
			if err = errors.Join(err, p.obey(lines.Text())); err != nil {
				answer = strings.ReplaceAll(err.Error(), "\n", "; ")
			}
			err = nil
			fmt.Println(answer)
		}
	}()
	return server.Run(ctx)
}

// profiles are the profiles of this process, of which one runs at a time.
type profiles struct{ file *os.File }

func (p *profiles) obey(line string) error {
	verb, file, _ := strings.Cut(line, " ")
	switch verb {
	case "cpu":
		return p.cpu(file)
	case "stop":
		return p.stop()
	case "heap":
		return heap(file)
	}
	return fmt.Errorf("unknown command %q", line)
}

func (p *profiles) cpu(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(err, file.Close())
	}
	p.file = file
	return nil
}

// stop ends the CPU profile that runs, if one does.
func (p *profiles) stop() error {
	if p.file == nil {
		return nil
	}
	pprof.StopCPUProfile()
	err := p.file.Close()
	p.file = nil
	return err
}

func heap(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	runtime.GC() // what lives, not what was used
	return errors.Join(pprof.WriteHeapProfile(file), file.Close())
}

// Command pods serves pods without nodes: their logs and consoles are Go functions.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:6443", "address to serve HTTPS at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	j := &journals{}
	err := controlplane.New("pods").
		Listen(*listen).
		Storage(memory.Store{}).
		With(
			authn.Admin{Kubeconfig: "admin.kubeconfig"},
			core.Namespaces{},
			kube.Pods(
				apis.PrepareForCreate(func(_ context.Context, p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
				apis.Stream("log", j.log),
				apis.Exec("exec", j.exec),
			),
		).
		Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pods:", err)
		os.Exit(1)
	}
}

// most is how many lines the journal of a pod keeps.
const most = 1000

// journals are what happened in the pods, by their UIDs.
type journals struct {
	mu    sync.Mutex
	lines map[string][]string
}

func (j *journals) add(p *corev1.Pod, line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lines == nil {
		j.lines = map[string][]string{}
	}
	all := j.lines[string(p.UID)]
	all = append(all, line)
	j.lines[string(p.UID)] = all[max(0, len(all)-most):]
}

func (j *journals) read(p *corev1.Pod) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string{p.Name + " was created"}, j.lines[string(p.UID)]...)
}

// log is kubectl logs, with --tail and -f.
func (j *journals) log(ctx context.Context, p *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() {
		lines := j.read(p)
		seen := 0
		if o.TailLines != nil {
			seen = max(0, len(lines)-int(*o.TailLines))
		}
		look := time.NewTicker(100 * time.Millisecond)
		defer look.Stop()
		for {
			for _, line := range lines[min(seen, len(lines)):] {
				if _, err := fmt.Fprintln(w, line); err != nil {
					return // nobody reads any more
				}
			}
			seen = len(lines)
			if !o.Follow {
				_ = w.Close()
				return
			}
			select {
			case <-look.C:
				lines = j.read(p)
			case <-ctx.Done():
				return
			}
		}
	}()
	return r, nil
}

// exec is kubectl exec. The pods know two commands, and sh is a shell that knows them too.
func (j *journals) exec(_ context.Context, p *corev1.Pod, o *corev1.PodExecOptions, s apis.Streams) error {
	if len(o.Command) == 0 {
		return errors.New("which command?")
	}
	if o.Command[0] != "sh" {
		return j.run(p, o.Command, s.Stdout)
	}
	for in := bufio.NewScanner(s.Stdin); ; {
		fmt.Fprint(s.Stdout, p.Name, "> ")
		if !in.Scan() {
			return in.Err()
		}
		words := strings.Fields(in.Text())
		if len(words) == 0 {
			continue
		}
		if words[0] == "exit" {
			return nil
		}
		if err := j.run(p, words, s.Stdout); err != nil {
			fmt.Fprintln(s.Stderr, err)
		}
	}
}

func (j *journals) run(p *corev1.Pod, command []string, out io.Writer) error {
	switch command[0] {
	case "hostname":
		fmt.Fprintln(out, p.Name)
	case "note":
		j.add(p, strings.Join(command[1:], " "))
	default:
		return errors.New(command[0] + ": no such command: try hostname, or note")
	}
	return nil
}

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// sailplane is the binary on one storage, its name or a URL, with every part that it has without
// being asked; of the audit log, see options.audit.
type sailplane struct {
	lab     *lab
	storage string
	encrypt bool     // ConfigMaps, at rest
	more    []string // flags
}

func (t *sailplane) name() string { return columnOf(t.storage) }

func columnOf(storage string) string { return "Sailplane, " + storage }

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
	args := serveArgs(dir, t.storage, port)
	if t.encrypt {
		file, err := writeEncryption(dir)
		if err != nil {
			return nil, err
		}
		args = append(args, "--encryption-provider-config="+file)
	}
	args = append(args, t.more...)
	var p *process
	if t.lab.linked && !t.encrypt {
		scheme, _, _ := strings.Cut(t.storage, ":")
		s.profiler = &profiler{dir: t.lab.cpuprofile, storage: scheme}
		p, err = s.profiler.begin(exec.Command(t.lab.program("profiled"), args...), phase)
	} else {
		p, err = begin(exec.Command(t.lab.program("sailplane"), append([]string{"serve"}, t.lab.withAudit(args, dir)...)...))
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

func serveArgs(dir, storage string, port int) []string {
	return []string{fmt.Sprintf("--listen=127.0.0.1:%d", port), "--data-dir=" + dir, "--storage=" + storageURL(dir, storage)}
}

// storageURL is a storage as flags name it.
func storageURL(dir, storage string) string {
	own := map[string]string{
		storageMemory: "memory",
		storageSQLite: "sqlite:" + filepath.Join(dir, "state.db"),
		storageEtcd:   "etcd:" + filepath.Join(dir, "etcd"),
	}
	return cmp.Or(own[storage], storage)
}

// withAudit adds what the audit log is to be.
func (l *lab) withAudit(args []string, dir string) []string {
	if !l.audit {
		return append(args, "--audit-log-path=none")
	}
	return append(args, "--audit-log-path="+filepath.Join(dir, "audit.log"), "--audit-policy-file="+l.auditPolicy())
}

// auditPolicy is a file that all servers are given.
func (l *lab) auditPolicy() string { return filepath.Join(l.dir, "audit.yaml") }

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: Metadata
`

const secretboxKey = 32 // bytes

// writeEncryption writes a configuration that encrypts ConfigMaps.
func writeEncryption(dir string) (file string, err error) {
	key := make([]byte, secretboxKey)
	if _, err := rand.Read(key); err != nil {
		return "", err
	}
	file = filepath.Join(dir, "encryption.yaml")
	return file, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [configmaps]
  providers:
  - secretbox: {keys: [{name: bench, secret: %s}]}
`, base64.StdEncoding.EncodeToString(key)), 0o600)
}

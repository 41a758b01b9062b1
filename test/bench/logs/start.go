package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// measureStart measures how much a server reads until it is ready, on a file that
// was closed in order.
func measureStart(ctx context.Context, l *lab) error {
	if l.server == "" {
		fmt.Fprintln(os.Stderr, "logs: start is left out: name the program with -server")
		return nil
	}
	dir := filepath.Join(l.dir, "start")
	path := filepath.Join(dir, "state.db")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if _, err := start(ctx, l.server, dir, path); err != nil { // what each server has anyway
		return err
	}
	if err := with(ctx, sqlite.File{Path: path}, func(c *clientv3.Client) error { return objects(ctx, c, l.mebibytes) }); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	read, err := start(ctx, l.server, dir, path)
	if err != nil {
		return err
	}
	title("Start on a file that was closed in order", "file, MiB", "read until ready, MiB", "ratio")
	fmt.Printf("| %d | %d | %.2f |\n", info.Size()>>20, read>>20, float64(read)/float64(info.Size()))
	return nil
}

// objects writes ConfigMaps of 10 KiB.
func objects(ctx context.Context, c *clientv3.Client, mebibytes int) error {
	data := strings.Repeat("x", 10<<10)
	for i := range mebibytes << 10 / 10 {
		name := fmt.Sprintf("cm-%06d", i)
		_, err := c.Put(ctx, "/registry/configmaps/default/"+name, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default","uid":"00000000-0000-0000-0000-%012d"},"data":{"x":%q}}`,
			name, i, data))
		if err != nil {
			return err
		}
	}
	return nil
}

// start runs a server until it is ready, and returns how many bytes it has read.
func start(ctx context.Context, server, dir, path string) (read int64, err error) {
	cmd := exec.CommandContext(ctx, server, "serve", "--listen=127.0.0.1:0", "--data-dir="+dir, "--storage=sqlite:"+path, "--audit-log-path=none")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "ready at") {
	}
	counts, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", cmd.Process.Pid))
	if err == nil {
		_, err = fmt.Sscanf(string(counts), "rchar: %d", &read)
	}
	err = errors.Join(err, cmd.Process.Signal(os.Interrupt))
	for lines.Scan() {
	}
	return read, errors.Join(err, cmd.Wait())
}

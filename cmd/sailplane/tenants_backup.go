package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/storageapi"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// ofTenant is the sub-resource of an EtcdStorage.
func ofTenant(name, subresource string) page {
	version := v1alpha1.SchemeGroupVersion()
	return page{
		path: "/apis/" + version.String() + "/etcdstorages/" + name + "/" + subresource, what: subresource + " of EtcdStorages",
		part: "storageapi.EtcdStorages{}", object: name, resource: "etcdstorages/" + subresource,
	}
}

func backupTenantCommand() *cobra.Command {
	s := &settings{}
	c := &cobra.Command{
		Use:   "backup NAME FILE",
		Short: "Write a backup of one EtcdStorage of a running server",
		Long: `Write a backup of what one EtcdStorage has, as it is at one moment. Writes go on
meanwhile. FILE may be -, for the standard output. It is restored to any EtcdStorage, of
this server or another one, with "sailplane tenants restore". What its API server
encrypts is encrypted in the backup.

It asks the server, as its administrator, or as another user who may get
etcdstorages/backup.`,
		Example: `  sailplane tenants backup --data-dir data flunders flunders.backup`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, c, err := s.document()
			if err != nil {
				return err
			}
			return backupTenant(cmd, server.Kubeconfig(c), args[0], args[1])
		},
	}
	askWith(c, s)
	return c
}

// askWith adds the flags that say as whom a server is asked.
func askWith(c *cobra.Command, s *settings) {
	s.only(c, "data-dir", "kubeconfig")
	c.Flags().Lookup("kubeconfig").Usage = "kubeconfig to ask with (default admin.kubeconfig in --data-dir)"
}

func backupTenant(cmd *cobra.Command, kubeconfig, name, file string) error {
	log := cmd.ErrOrStderr()
	say := &counted{teller: newTeller(log)}
	begun := time.Now()
	write := func(to io.Writer) (backup.Info, error) {
		return ofTenant(name, "backup").backup(cmd.Context(), kubeconfig, io.MultiWriter(to, say))
	}
	var info backup.Info
	var err error
	if file == "-" {
		info, err = writeOut(cmd.OutOrStdout(), write)
	} else {
		info, _, err = backup.WriteFile(file, write)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "%s: backup of EtcdStorage %s of %s at revision %d: %d keys, %s, in %v\n",
		file, name, info.Taken.Format(time.RFC3339), info.Revision, info.Keys+info.Expiring, size(say.n),
		time.Since(begun).Round(time.Millisecond))
	if len(info.Encrypted) > 0 {
		fmt.Fprintf(log, "keep the encryption configuration of its API server apart from it: %s\n", encrypted(info))
	}
	return nil
}

func restoreTenantCommand() *cobra.Command {
	s := &settings{}
	c := &cobra.Command{
		Use:   "restore NAME FILE",
		Short: "Replace what one EtcdStorage of a running server has by a backup",
		Long: `Replace what one EtcdStorage has by a backup that "sailplane tenants backup" wrote, of
that EtcdStorage or another one. FILE may be -, for the standard input. After a loss, make
the EtcdStorage first, on whichever server.

The server checks the whole backup first: nothing is changed unless all of it can be
read, and is within the limits of the EtcdStorage. Then its API server is cut off
until everything is there. Revisions go on above all that it has seen, so that it lists
again, and needs no restart.

A restore that was interrupted leaves the EtcdStorage closed, with the reason Restoring.
The same command completes it.

It asks the server, as its administrator, or as another user who may create
etcdstorages/restore.`,
		Example: `  sailplane tenants restore --data-dir data flunders flunders.backup`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, c, err := s.document()
			if err != nil {
				return err
			}
			return restoreTenant(cmd, server.Kubeconfig(c), args[0], args[1])
		},
	}
	askWith(c, s)
	return c
}

func restoreTenant(cmd *cobra.Command, kubeconfig, name, file string) error {
	ctx, in := cmd.Context(), cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	log := cmd.ErrOrStderr()
	sent := &sending{from: in, say: newTeller(log), all: make(chan struct{})}
	begun := time.Now()
	p := ofTenant(name, "restore")
	p.method, p.body = http.MethodPost, sent
	waiting, answered := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		tellRestore(waiting, kubeconfig, name, sent.all, log)
	}()
	answer, err := p.get(ctx, kubeconfig)
	answered()
	<-told
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: see with sailplane tenants whether EtcdStorage %s waits for a restore; "+
			"if so, run the same command again", name)
	}
	if err != nil {
		return err
	}
	defer answer.Close()
	var done storageapi.Restored
	if err := json.NewDecoder(answer).Decode(&done); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "restored EtcdStorage %s from the backup of %s, of EtcdStorage %s, in %v: %d keys, %d bytes; %d had expired\n",
		name, done.Taken.Format(time.RFC3339), done.EtcdStorage, time.Since(begun).Round(time.Millisecond),
		done.Keys, done.Bytes, done.Expired)
	fmt.Fprintf(out, "revisions go on at %d, above those of before: its API server lists again, and needs no restart\n", done.Revision)
	return nil
}

// sending says how much was sent, and closes all when that is everything.
type sending struct {
	from io.Reader
	say  *teller
	n    int64
	all  chan struct{}
	done bool
}

// Read implements io.Reader.
func (s *sending) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	s.n += int64(n)
	s.say.bytes("sent", s.n)
	if errors.Is(err, io.EOF) && !s.done {
		s.done = true
		close(s.all)
	}
	return n, err
}

// tellRestore says what the condition of an EtcdStorage says, now and then from when a backup was sent until the
// context ends. Who may not read it waits.
func tellRestore(ctx context.Context, kubeconfig, name string, sent <-chan struct{}, log io.Writer) {
	select {
	case <-sent:
	case <-ctx.Done():
		return
	}
	c, err := connect(kubeconfig)
	if err != nil {
		return
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		o, err := c.objects.Resource(v1alpha1.SchemeGroupVersion().WithResource("etcdstorages")).Get(ctx, name, metav1.GetOptions{})
		var s v1alpha1.EtcdStorage
		if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s) != nil {
			continue
		}
		ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		if ready != nil && ready.Reason == v1alpha1.ReasonRestoring {
			fmt.Fprintln(log, printable(ready.Message))
		}
	}
}

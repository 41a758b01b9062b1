package envtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
)

// Command returns "envtest", for a program that calls Named at its start.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "envtest",
		Short: "Stand in for the binaries of controller-runtime's envtest",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(installCommand())
	return c
}

func installCommand() *cobra.Command {
	i := installation{}
	c := &cobra.Command{
		Use:   "install --dir DIR",
		Short: "Write kube-apiserver, etcd and kubectl for envtest",
		Long: `Write the executables that controller-runtime's envtest starts into a directory,
and print its path. Set KUBEBUILDER_ASSETS to that path; nothing else is needed.

  KUBEBUILDER_ASSETS=$(sailplane envtest install --dir bin/envtest) go test ./...

kube-apiserver and etcd are this program under other names. kubectl is not part
of it: it is a link to the one on PATH, if there is one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			i.program = program
			return i.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&i.dir, "dir", "", "directory to write to, created if missing (required)")
	c.Flags().StringVar(&i.kubectl, "kubectl", "", "kubectl to link to (default the one on PATH)")
	_ = c.MarkFlagRequired("dir")
	_ = c.MarkFlagDirname("dir")
	_ = c.MarkFlagFilename("kubectl")
	return c
}

// installation says which files to write where.
type installation struct {
	program string // this program
	dir     string
	kubectl string
}

func (i installation) run(out, log io.Writer) error {
	dir, err := filepath.Abs(i.dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	server := filepath.Join(dir, executable(apiServerName))
	// A hard link: the program may be replaced, or be that of a "go run".
	if err := place(server, i.program, os.Link, duplicate); err != nil {
		return err
	}
	if err := place(filepath.Join(dir, executable(etcdName)), server, os.Link, duplicate); err != nil {
		return err
	}
	if err := i.linkKubectl(filepath.Join(dir, executable(kubectlName)), log); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, dir)
	return err
}

// linkKubectl puts a kubectl where the others are.
func (i installation) linkKubectl(to string, log io.Writer) error {
	from := i.kubectl
	if from == "" {
		from, _ = exec.LookPath(kubectlName)
	}
	if from == "" {
		warn(log, "no kubectl is on PATH, so %s has none: name one with --kubectl if the tests call it", filepath.Dir(to))
		return nil
	}
	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	if _, err := os.Stat(from); err != nil {
		return fmt.Errorf("--kubectl: %w", err)
	}
	if from == to {
		return nil // the directory is on PATH
	}
	link := os.Symlink
	if runtime.GOOS == "windows" {
		link = os.Link // symbolic links need a privilege there
	}
	return place(to, from, link, duplicate)
}

// executable is the file name of a program.
func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}

// place puts a file at a path, whole or not at all, in the first way that works.
// A program running from there keeps running.
func place(to, from string, ways ...func(from, to string) error) error {
	if same(from, to) {
		return nil
	}
	holder, err := os.MkdirTemp(filepath.Dir(to), ".install-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(holder) }() // leftovers are useless
	made := filepath.Join(holder, filepath.Base(to))
	var errs []error
	for _, way := range ways {
		if err := way(from, made); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := os.Rename(made, to); err != nil {
			return fmt.Errorf("write %s: %w; stop the programs that run from there", to, err)
		}
		return nil
	}
	return fmt.Errorf("write %s: %w", to, errors.Join(errs...))
}

// same tells whether two paths are the same file.
func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Lstat(b)
	return err == nil && os.SameFile(x, y)
}

// duplicate copies a program.
func duplicate(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

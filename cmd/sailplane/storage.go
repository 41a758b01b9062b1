package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

func storageCommand() *cobra.Command {
	c := &cobra.Command{Use: "storage", Short: "Work on what is stored"}
	c.AddCommand(serveStorageCommand(), copyCommand(), checkCommand(), compactCommand(), defragCommand(), migrateCommand(),
		reencryptCommand())
	return c
}

// place is a storage that a command works on, as its flags name it.
type place struct {
	flag string // "from", "to"
	// read: it is there already. memory: it may be in this process.
	read, memory bool
	// url is as storage.url, and config a file that has the URL and all else.
	url, config string
	// what a URL does not have; see config.Storage.
	password, ca, cert, key string
	// encryption is the encryption configuration that the file names, once it is open.
	encryption string
}

// flags adds the flags of the place.
func (p *place) flags(c *cobra.Command, what string) {
	f := c.Flags()
	f.StringVar(&p.url, p.flag, "",
		what+", as --storage of serve names it: sqlite:FILE, etcd:DIR, etcd+https://HOST:PORT, postgres://..., mysql://...")
	f.StringVar(&p.config, p.flag+"-config", "", "configuration file of the server there, in place of --"+p.flag)
	f.StringVar(&p.password, p.flag+"-password-file", "", "file with the password of a database (default $"+server.PasswordVariable+")")
	f.StringVar(&p.ca, p.flag+"-ca", "", "CA file to verify an external storage with")
	f.StringVar(&p.cert, p.flag+"-cert", "", "client certificate file for an external storage")
	f.StringVar(&p.key, p.flag+"-key", "", "client key file for an external storage")
	_ = c.MarkFlagFilename(p.flag+"-config", "yaml", "yml", "json")
	for _, name := range []string{"-password-file", "-ca", "-cert", "-key"} {
		_ = c.MarkFlagFilename(p.flag + name)
	}
}

// isNamed tells whether the flags name a storage.
func (p *place) isNamed() bool { return p.url != "" || p.config != "" }

// open returns the storage and the prefix of its keys; empty: the place does not say.
func (p *place) open() (s controlplane.Storage, prefix string, err error) {
	if (p.url == "") == (p.config == "") {
		return nil, "", misused(fmt.Errorf("--%s: want a storage, or --%s-config, and not both", p.flag, p.flag))
	}
	d := config.New()
	if p.config != "" {
		if err := d.File(p.config); err != nil {
			return nil, "", misused(err)
		}
	}
	c, err := d.Server()
	if err != nil {
		return nil, "", misused(err)
	}
	if p.config != "" {
		prefix, p.encryption = c.Storage.Prefix, c.Encryption.ConfigFile
	}
	c.Storage.URL = cmp.Or(p.url, c.Storage.URL)
	c.Storage.PasswordFile = cmp.Or(p.password, c.Storage.PasswordFile)
	c.Storage.CAFile, c.Storage.CertFile = cmp.Or(p.ca, c.Storage.CAFile), cmp.Or(p.cert, c.Storage.CertFile)
	c.Storage.KeyFile = cmp.Or(p.key, c.Storage.KeyFile)
	if c.Storage.URL == "memory" && !p.memory {
		return nil, "", misused(fmt.Errorf("--%s: what is in memory is gone with its server", p.flag))
	}
	s, err = server.Storage(c, os.Getenv(server.PasswordVariable))
	if err != nil {
		return nil, "", misused(fmt.Errorf("--%s: %w", p.flag, err))
	}
	if p.read {
		err = isThere(s)
	}
	return s, prefix, err
}

// isThere returns an error if a storage on disk does not exist: it would be made, and be empty.
func isThere(s controlplane.Storage) error {
	var path string
	switch s := s.(type) {
	case sqlite.File:
		path = s.Path
	case etcd.Embedded:
		path = filepath.Join(s.Dir, "member")
	default:
		return nil
	}
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%v does not exist: name one that a server has used", s)
	}
	return err
}

// onePrefix is what keys start with: what a flag says, or else what the places do, which have to agree.
// Empty: the default.
func onePrefix(flag, from, to string) (string, error) {
	if flag == "" && from != "" && to != "" && from != to {
		return "", misused(errors.New("the configurations of both storages have other prefixes (storage.prefix): " +
			"keys are copied as they are; give both the same"))
	}
	return cmp.Or(flag, from, to), nil
}

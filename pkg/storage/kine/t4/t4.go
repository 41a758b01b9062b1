// Package t4 keeps a server's objects in t4 (https://github.com/t4db/t4), a
// database in this process with its files in a directory and, if configured, a
// copy of its log in an S3 bucket. It runs with kine's driver:
// docs/storage/kine.md says what does not hold there.
package t4

import (
	"errors"
	"maps"
	"net/url"
	"slices"

	"github.com/k3s-io/kine/pkg/drivers"
	driver "github.com/k3s-io/kine/pkg/drivers/t4"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine"
)

// Node is a t4 database that only this server uses. The URL is t4:///directory,
// or t4://directory for one below the working directory. Its query has the
// bucket, folder, endpoint and region of S3, and the settings of kine's driver:
// node-id, checkpoint-interval and segment-max-age. The access key of S3 is the
// user of the URL and its secret the password: t4://key@/directory. Or "profile"
// in the query names one of ~/.aws. CAFile is for S3 as well. DialTimeout is not
// used: the context of the start bounds it.
type Node kine.Remote

var _ controlplane.Storage = Node{}

// String leaves the credentials out.
func (n Node) String() string { return kine.Remote(n).Name("t4") }

// Traits implements controlplane.Storage. t4 syncs its log before it answers.
func (Node) Traits() controlplane.Traits { return controlplane.Traits{Engine: "t4", Durable: true} }

// Open implements controlplane.Storage.
func (n Node) Open() controlplane.Backend {
	return kine.Open(kine.Driver{
		Name: n.String(), Remote: kine.Remote(n), Schemes: []string{"t4"},
		Limits: "an event may come after the progress notification of its revision, " +
			"and a compaction may drop events that a watch has not received yet; " +
			"see docs/storage/kine.md",
		New: driver.New, Config: n.config,
	})
}

// config describes the database in kine's form: a path, and S3 separately.
func (n Node) config(u *url.URL, config *drivers.Config) error {
	query := u.Query()
	directory := u.Host + u.Path
	secret, _ := u.User.Password()
	switch {
	case directory == "" || directory == "/":
		return errors.New("the URL names no directory: t4:///directory")
	case n.CertFile != "":
		return errors.New("S3 takes no certificate: use the access key")
	case query.Has("service-name"):
		return errors.New("service-name is not supported: a t4 database has one server")
	case u.User != nil && query.Get("bucket") == "":
		return errors.New("there is an access key but no bucket")
	}
	config.BackendTLSConfig.CAFile = ""
	config.S3Config = drivers.S3Config{
		Bucket: query.Get("bucket"), Folder: query.Get("folder"), Endpoint: query.Get("endpoint"),
		Region: query.Get("region"), Profile: query.Get("profile"),
		AccessKey: u.User.Username(), SecretKey: secret, CABundle: n.CAFile,
	}
	// kine reads its own settings from the query.
	maps.DeleteFunc(query, func(name string, _ []string) bool {
		return !slices.Contains([]string{"node-id", "checkpoint-interval", "segment-max-age"}, name)
	})
	config.DataSourceName = directory + "?" + query.Encode()
	return nil
}

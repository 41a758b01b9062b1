package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	certutil "k8s.io/client-go/util/cert"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/authn"
)

func kubeconfigCommand() *cobra.Command {
	s := &settings{}
	login := authn.Login{}
	out := ""
	c := &cobra.Command{
		Use:   "kubeconfig --user NAME",
		Short: "Make a kubeconfig for a user",
		Long: `Make a kubeconfig for a user, with a client certificate that the server's own
authority signs. The server need not run. It is good for what roles allow the user
and the groups, until it ends: nothing takes it back before, so keep it short.

  sailplane kubeconfig --user ann --group growers --for 8h > ann.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, _, err := s.administrator()
			if err != nil {
				return err
			}
			if login.User == "" || login.Lifetime < 0 {
				return misused(errors.New("--user, --for: name the user, and a duration above 0, such as 8h"))
			}
			if _, err := os.Stat(admin.Kubeconfig); login.Server == "" && err != nil {
				return misused(fmt.Errorf("no server has run with these: %w: name its --data-dir, or the URL with --server", err))
			}
			text, end, err := admin.Issue(login)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "user %s, groups %s, until %s\n",
				login.User, cmp.Or(strings.Join(login.Groups, ","), "none"), end.Local().Format(time.DateTime)); err != nil {
				return err
			}
			if out == "" {
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return os.WriteFile(out, text, 0o600)
		},
	}
	f := c.Flags()
	f.StringVar(&login.User, "user", "", "name of the user (required)")
	f.StringArrayVar(&login.Groups, "group", nil, "group that the user is in; may be repeated")
	f.DurationVar(&login.Lifetime, "for", 8*time.Hour, "how long the certificate is valid")
	f.StringVar(&login.Server, "server", "", "URL of the server (default that of the administrator's kubeconfig)")
	f.StringVar(&login.CAFile, "certificate-authority", "",
		"file with further authorities to trust, for a server whose certificate is not its own (--tls-cert-file)")
	f.StringVar(&out, "out", "", "file to write, mode 0600 (default standard output)")
	s.only(c, "data-dir", "kubeconfig")
	return c
}

func pkiCommand() *cobra.Command {
	s := &settings{}
	c := &cobra.Command{
		Use:   "pki",
		Short: "Show the certificates of a server, and until when they are valid",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, c, err := s.administrator()
			if err != nil {
				return err
			}
			all, err := admin.Certificates()
			if err != nil {
				return err
			}
			return listCertificates(cmd.OutOrStdout(), all, c, time.Now())
		},
	}
	s.only(c, "data-dir", "kubeconfig", "tls-cert-file", "tls-sni-cert-key", "client-ca-file")
	renewing := &settings{}
	renew := &cobra.Command{
		Use:   "renew",
		Short: "Issue the serving certificate and the administrator's again",
		Long: `Issue the serving certificate and the administrator's again. A running server
takes them within seconds, and connections stay open. A server renews them by itself
30 days before they end.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, _, err := renewing.administrator()
			if err != nil {
				return err
			}
			return admin.Renew(cmd.Context())
		},
	}
	renewing.only(renew, "data-dir", "kubeconfig")
	c.AddCommand(renew)
	return c
}

// administrator returns the part with the server's authority.
func (s *settings) administrator() (authn.Admin, *config.Server, error) {
	_, c, err := s.document()
	if err != nil {
		return authn.Admin{}, nil, err
	}
	if c.DataDir == "" {
		return authn.Admin{}, nil, misused(errors.New("--data-dir is empty: a server without one has no authority of its own"))
	}
	return server.Administrator(c), c, nil
}

// listCertificates prints what there is: the server's own, and those that are given.
func listCertificates(to io.Writer, own map[string]*x509.Certificate, c *config.Server, now time.Time) error {
	all := maps.Clone(own)
	files := []string{c.Serving.CertFile, c.Authentication.ClientCAFile}
	for _, further := range c.Serving.Certificates {
		files = append(files, further.CertFile)
	}
	var errs []error
	for _, file := range slices.DeleteFunc(files, func(f string) bool { return f == "" }) {
		certs, err := certutil.CertsFromFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all[file] = certs[0]
	}
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "FILE\tFOR\tISSUER\tUNTIL\tLEFT")
	for _, file := range slices.Sorted(maps.Keys(all)) {
		cert := all[file]
		left := duration.HumanDuration(cert.NotAfter.Sub(now))
		if now.After(cert.NotAfter) {
			left = "ended"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", file, subject(cert), cert.Issuer.CommonName, cert.NotAfter.Format(time.DateOnly), left)
	}
	return errors.Join(append(errs, w.Flush())...)
}

// subject says what a certificate is for: its names, or its user and groups.
func subject(cert *x509.Certificate) string {
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) > 0 {
		return strings.Join(names, ",")
	}
	if len(cert.Subject.Organization) > 0 {
		return cert.Subject.CommonName + " of " + strings.Join(cert.Subject.Organization, ",")
	}
	return cert.Subject.CommonName
}

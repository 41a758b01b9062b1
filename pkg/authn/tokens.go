package authn

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

// Tokens recognises callers by the tokens in a file, which never expire: for
// tests, and to bootstrap clients that have no other credentials yet.
type Tokens struct {
	// File is a CSV file like kube-apiserver's --token-auth-file: a line has a
	// token, a user name, a UID that may be empty and, optionally, groups in one
	// quoted column, `secret,ann,1,"growers,pickers"`. Changes take effect within
	// seconds; a file that cannot be used changes nothing and is logged. Only its
	// owner and group may have permissions on it. See
	// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#static-token-file
	// Required.
	File string
}

// PartName implements the name errors use.
func (Tokens) PartName() string { return "authn.Tokens" }

// Install declares the authenticator and the work that follows the file.
func (t Tokens) Install(p *controlplane.Plan) error {
	if t.File == "" {
		return errors.New(`field File: is empty: name a CSV file with lines such as token,user,uid,"group1,group2"`)
	}
	var known current[authenticator.Token]
	use := func(_ context.Context, users map[string]*user.DefaultInfo) error {
		var next authenticator.Token = tokenfile.New(users)
		known.Store(&next)
		return nil
	}
	file := followed(p, "field File", follow.Source{What: "token file", File: t.File, Read: secretfile.Read}, parseTokens, use)
	p.Authenticate(file.Name(), bearer(&known))
	return nil
}

// parseTokens reads the users of a token file. Errors never have a token in them.
func parseTokens(content []byte) (map[string]*user.DefaultInfo, error) {
	users := map[string]*user.DefaultInfo{}
	r := csv.NewReader(bytes.NewReader(content))
	r.FieldsPerRecord = -1
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err // names the line
		}
		line, _ := r.FieldPos(0)
		if len(record) < 3 || len(record) > 4 {
			return nil, fmt.Errorf(`line %d has %d columns: want token,user,uid,"group1,group2"`, line, len(record))
		}
		token, name := record[0], record[1]
		if token == "" || strings.ContainsAny(token, " \t\r\n") {
			return nil, fmt.Errorf("line %d: the token is empty or has a space in it", line)
		}
		if name == "" {
			return nil, fmt.Errorf("line %d: the user name is empty", line)
		}
		if _, twice := users[token]; twice {
			return nil, fmt.Errorf("line %d: a line above has the same token", line)
		}
		users[token] = &user.DefaultInfo{Name: name, UID: record[2], Groups: groupsOf(record[3:])}
	}
	if len(users) == 0 {
		return nil, errors.New("the file has no tokens")
	}
	return users, nil
}

// groupsOf returns the groups in the optional last column.
func groupsOf(columns []string) (groups []string) {
	for _, c := range columns {
		for g := range strings.SplitSeq(c, ",") {
			if g = strings.TrimSpace(g); g != "" {
				groups = append(groups, g)
			}
		}
	}
	return groups
}

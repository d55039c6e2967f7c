// Package operator authenticates operators by HTTP basic authentication against named accounts. It
// slows guesses down without locking an operator out.
package operator

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/crypto/bcrypt"
)

// hashCost is the bcrypt cost of every hash. All hashes have the same cost, so that all accounts
// and unknown names take the same time. Only tests change it.
var hashCost = 12

// MinPassword is the minimum length of a password, in bytes. Only a sandbox may configure a shorter
// one.
const MinPassword = 16

// maxPassword is the maximum length of a password, in bytes. bcrypt ignores what follows.
const maxPassword = 72

// maxName is the maximum length of an account's name, in bytes.
const maxName = 64

// Role says what an operator may do.
type Role string

// The roles.
const (
	RoleLook Role = "look" // reads everything, changes nothing
	RoleAct  Role = "act"  // also performs acts, which the audit log records
)

// ParseRole reads a role.
func ParseRole(text string) (Role, error) {
	if role := Role(text); role == RoleLook || role == RoleAct {
		return role, nil
	}
	return "", fmt.Errorf("operator: the role must be %s or %s", RoleLook, RoleAct)
}

// Account is an operator's account.
type Account struct {
	Role Role
	hash func() []byte // a function, because a hash of a plain password is made only when needed
}

// Accounts are the operators' accounts by name.
type Accounts map[string]Account

// Hash returns the line of an accounts file for a name, a password and a role.
func Hash(name, password string, role Role) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	if len(password) < MinPassword || len(password) > maxPassword {
		return "", fmt.Errorf("operator: the password must have %d to %d bytes", MinPassword, maxPassword)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), hashCost)
	return name + ":" + string(hash) + ":" + string(role), err
}

func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool {
		return r == ':' || unicode.IsControl(r) || unicode.IsSpace(r)
	}) {
		return fmt.Errorf("operator: the name must have 1 to %d bytes, without colon and white space", maxName)
	}
	return nil
}

// ParseAccounts parses an accounts file: lines of name:hash:role as Hash writes them, or name:hash
// as `htpasswd -nB -C 12` writes them, which means the role look. Empty lines and lines that begin
// with # are ignored.
func ParseAccounts(text string) (Accounts, error) {
	accounts := Accounts{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, ":")
		hash, role, hasRole := strings.Cut(rest, ":")
		if !hasRole {
			role = string(RoleLook)
		}
		if err := accounts.addHash(name, []byte(hash), role); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err) // without the line, which may hold a secret
		}
	}
	return accounts, nil
}

func (a Accounts) add(name string, account Account) error {
	if err := checkName(name); err != nil {
		return err
	}
	if _, repeated := a[name]; repeated {
		return errors.New("operator: the name is repeated")
	}
	a[name] = account
	return nil
}

func (a Accounts) addHash(name string, hash []byte, role string) error {
	parsed, err := ParseRole(role)
	if err != nil {
		return err
	}
	if cost, err := bcrypt.Cost(hash); err != nil || cost != hashCost {
		return fmt.Errorf("operator: the hash must be bcrypt of cost %d, as svc admin operator hash prints", hashCost)
	}
	return a.add(name, Account{parsed, func() []byte { return hash }})
}

// AddPassword adds an account with a password that the configuration holds in plain text.
func (a Accounts) AddPassword(name, password string, role Role) error {
	if len(password) > maxPassword {
		return fmt.Errorf("operator: the password must have at most %d bytes", maxPassword)
	}
	return a.add(name, Account{role, sync.OnceValue(func() []byte {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), hashCost)
		if err != nil {
			panic(err) // only for a longer password or an impossible cost
		}
		return hash
	})})
}

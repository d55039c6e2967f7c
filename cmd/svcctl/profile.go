package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// profile names a service, and holds the credentials for it.
type profile struct {
	BaseURL      string   `json:"baseUrl"`
	ClientID     string   `json:"clientId"`
	ClientSecret string   `json:"clientSecret"`
	Sites        []string `json:"sites,omitempty"` // the first one is the default
}

// profiles is the content of the profile file.
type profiles struct {
	Active   string             `json:"active,omitempty"` // the profile in use; "" for none
	Profiles map[string]profile `json:"profiles"`
}

// defaultProfile is the name of the profile that svcctl login stores without a name.
const defaultProfile = "default"

// profileFile returns the path of the profile file: SVCCTL_CONFIG, or a file in the user's
// configuration folder.
func (c *ctl) profileFile() (string, error) {
	if name := c.getenv("SVCCTL_CONFIG"); name != "" {
		return name, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("SVCCTL_CONFIG is not set: %w", err)
	}
	return filepath.Join(dir, "svcctl", "profiles.json"), nil
}

// loadProfiles reads the profile file. Without a file it returns no profiles and no error.
func (c *ctl) loadProfiles() (profiles, error) {
	none := profiles{Profiles: map[string]profile{}}
	name, err := c.profileFile()
	if err != nil { // an account without a home has no profiles
		return none, nil //nolint:nilerr // it is no fault
	}
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	stored := none
	if err := json.Unmarshal(content, &stored); err != nil {
		return none, fmt.Errorf("%s is not a profile file: %w", name, err)
	}
	if stored.Profiles == nil { // an edited file may have null
		stored.Profiles = none.Profiles
	}
	return stored, nil
}

// saveProfiles replaces the profile file atomically. Only the user can read the file.
func (c *ctl) saveProfiles(stored profiles) error {
	name, err := c.profileFile()
	if err != nil {
		return err
	}
	content, err := json.MarshalIndent(stored, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return replaceFile(name, append(content, '\n'))
}

// privateFile is the mode of a file that only the user can read.
const privateFile = 0o600

// replaceFile writes a file that only the user can read. It replaces an older file only when the
// new one is complete. It follows symbolic links, unless they dangle. If the name leads to a pipe,
// a device or the like, it writes there instead.
func replaceFile(name string, content []byte) error {
	return replaceFileMode(name, content, privateFile)
}

// replaceFileKeepingMode does the same as replaceFile, but keeps the mode of an older file.
func replaceFileKeepingMode(name string, content []byte) error {
	mode := fs.FileMode(privateFile)
	if stat, err := os.Stat(name); err == nil && stat.Mode().IsRegular() {
		mode = stat.Mode().Perm()
	}
	return replaceFileMode(name, content, mode)
}

// replaceFileMode implements replaceFile for a mode.
func replaceFileMode(name string, content []byte, mode fs.FileMode) error {
	stat, err := os.Stat(name)
	if err == nil && !stat.Mode().IsRegular() {
		return writeOpened(name, content)
	}
	if err == nil {
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return err
		}
	}
	file, err := os.CreateTemp(filepath.Dir(name), ".svcctl-*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(mode))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// writeOpened writes to something that exists and is not a regular file.
func writeOpened(name string, content []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// profilesCommand returns `svcctl profiles`, which lists, chooses and removes stored profiles.
func (c *ctl) profilesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "profiles", Short: "List, choose and remove the profiles that login stored"}
	cmd.AddCommand(
		&cobra.Command{Use: "list", Short: "List the profiles; a star marks the one in use", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return c.listProfiles() }},
		&cobra.Command{Use: "use NAME", Short: "Use a profile from now on", Args: cobra.ExactArgs(1),
			ValidArgsFunction: c.completeProfiles,
			RunE: func(_ *cobra.Command, args []string) error {
				return c.changeProfiles(args[0], func(stored *profiles) { stored.Active = args[0] })
			}},
		&cobra.Command{Use: "remove NAME", Short: "Remove a profile and its secret", Args: cobra.ExactArgs(1),
			ValidArgsFunction: c.completeProfiles,
			RunE: func(_ *cobra.Command, args []string) error {
				return c.changeProfiles(args[0], func(stored *profiles) {
					delete(stored.Profiles, args[0])
					if stored.Active == args[0] {
						stored.Active = ""
					}
				})
			}},
	)
	return cmd
}

// listProfiles prints a table of the profiles without their secrets.
func (c *ctl) listProfiles() error {
	stored, err := c.loadProfiles()
	if err != nil {
		return err
	}
	rows := [][]string{{"", "NAME", "BASE URL", "CLIENT", "SITES"}}
	for _, name := range slices.Sorted(maps.Keys(stored.Profiles)) {
		p, mark := stored.Profiles[name], ""
		if name == stored.Active {
			mark = "*"
		}
		rows = append(rows, []string{mark, name, p.BaseURL, p.ClientID, strings.Join(p.Sites, " ")})
	}
	writeAligned(c.out, rows, 0)
	return nil
}

// changeProfiles loads the profiles, calls change, and saves them. It fails if there is no profile
// with the name.
func (c *ctl) changeProfiles(name string, change func(*profiles)) error {
	stored, err := c.loadProfiles()
	if err != nil {
		return err
	}
	if _, ok := stored.Profiles[name]; !ok {
		return fail(exitNotFound, "there is no profile %q; see svcctl profiles list", name)
	}
	change(&stored)
	return c.saveProfiles(stored)
}

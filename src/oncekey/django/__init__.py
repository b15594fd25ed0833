"""The Django application: `INSTALLED_APPS = [..., "oncekey.django"]`.

Its migration makes the tables of the store on each database that is migrated. `manage.py oncekey`
is the command line on the store of the project, and its records are in Django's admin.
"""
